"""Every example in the help works as typed at a terminal."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.cli.test_help import COMMANDS
from tests.support.datahub_rows import new_token, person, write_export
from tests.support.devices import approve_shown
from tests.support.preloaded import folder_with_program
from tests.support.server import ADMIN, Server
from tests.support.terminal import Terminal

# Examples that other tests run, because they need more setup.
ELSEWHERE = {
    "watchword serve --port 8080 --data-dir ./watchword-data": "by every test",
    (
        "watchword db copy --from sqlite:///watchword-data/watchword.db --to postgresql://ww@db.example.org/ww"
    ): "by test_copy",
    "watchword health --port 8080": "by test_health",
    "watchword event list --follow -o json": "by test_conventions",
    "watchword mail test alice@example.org": "by test_mail",
    "watchword webhook test chat": "by test_webhooks",
    "watchword session end 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU= --yes": "by test_sign_in",
}
EXAMPLES = [
    line.strip().removeprefix("Example: ")
    for command in COMMANDS.values()
    for line in (command.help or "").splitlines()
    if line.strip().startswith("Example: ")
]
TRIED = [line for line in EXAMPLES if line not in ELSEWHERE]
NOUNS = sorted({match[1] for line in TRIED if (match := re.search(r"watchword ([a-z]+)", line))})
# Another example deletes the rule.
RULE = "watchword retention update dataset.datasetProfile --keep 30d"
BEFORE = {
    "watchword webhook deliveries": "watchword webhook create chat --name Chat --to https://chat.example.org/hooks",
    "watchword retention plan": RULE,
    "watchword retention run": RULE,
    "watchword token show ci": "watchword token create ci",
    "watchword token update nightly": "watchword token create nightly",
    "watchword group create": "watchword group delete ops --yes",
    "watchword group add": "watchword group create ops --name Operations",
    "watchword logout": "watchword login --profile leaving --url https://tokens.example.org < leaving.token",
}
# Examples that find something, or run too late.
CODES = {
    "watchword webhook replay chat 1042": 1,
    "watchword token scan . ": 1,
    "watchword operation cancel": 1,
    "watchword policy apply policies.yaml --dry-run": 3,
}

POLICIES = """policies:
  - {id: own-tokens, name: Own tokens, privileges: [GENERATE_PERSONAL_ACCESS_TOKENS], actors: {allUsers: true}}
"""


class World:
    def __init__(self, server: Server, home: Path) -> None:
        self.server = server
        self.home = home
        self.env = {
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "PATH": f"{folder_with_program()}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "WATCHWORD_DATA_DIR": str(home / "watchword-data"),
            "PS1": "",
        }
        for name in ("token", ".watchword", "shop.token", "leaving.token", "leaked-token"):
            (home / name).write_text(self.token())
            (home / name).chmod(0o600)
        (home / "backup").mkdir()
        (home / "backup" / "old.env").write_text(f"TOKEN={self.token()}\n")
        (home / "rows.ndjson").write_text('{"timestampMillis": 1, "urn": "urn:li:x"}\n')
        (home / "policies.yaml").write_text(POLICIES)
        (home / "recipe.yaml").write_text("source: {type: datahub-gc}\n")
        write_export(home / "datahub.jsonl", [*person(ADMIN), new_token(ADMIN)[1]])
        subprocess.run(["git", "init", "-q", str(home)], check=True)
        self.do("login", "--url", server.url, "--profile", "work", stdin=self.token())
        self.do("login", "--url", server.url, "--profile", "tokens.example.org", stdin=self.token())
        self.do("policy", "apply", str(home / "policies.yaml"))
        self.do("retention", "update", "dataset.datasetProfile", "--keep", "30d")
        self.do("group", "create", "ops", "--name", "Operations")
        self.do("db", "migrate")
        self.do("index", "load", "--demo", "--data-dir", str(server.data_dir))
        words = ("index", "truncate", "chart.chartUsageStatistics", "--older-than", "30d", "--yes", "--json")
        self.operation = json.loads(self.do(*words))["id"]

    def do(self, *words: str, stdin: str | None = None) -> str:
        ran = watchword(*words, env=self.env, stdin=stdin)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def token(self) -> str:
        made: str = self.server.create(ADMIN)["accessToken"]
        return made

    def here(self, example: str) -> str:
        """Replace placeholders with real values."""
        made: dict[str, Callable[[], str]] = {
            "https://tokens.example.org": lambda: self.server.url,
            "kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=": lambda: self.server.create(ADMIN, duration="ONE_WEEK")[
                "metadata"
            ]["id"],
            "0b5c7a52-6c49-4d4e-9c7f-6f7f6d0f6a11": self._account,
            "oTUltX4IQMOUUVeiohTt8A:12345": lambda: self.operation,
            "/etc/shop/token": lambda: "shop.token",
            "/etc/watchword/master.key": lambda: "new-master.key",
            "/srv/backup": lambda: "backup",
            "/backup/": lambda: "",
        }
        return re.sub("|".join(map(re.escape, made)), lambda found: made[found[0]](), example)

    def _account(self) -> str:
        return self.do("account", "create", "--name", "nightly").strip().rpartition("service_")[2]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with Server(folder / "server") as server:
        home = folder / "home"
        home.mkdir()
        yield World(server, home)


@pytest.mark.parametrize("noun", NOUNS)
def test_every_example_in_the_help_works_as_it_is_typed(world: World, noun: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    world.do("profile", "use", "work")
    for example in TRIED:
        if re.search(rf"watchword {noun}\b", example) is None:
            continue
        for beginning, first in BEFORE.items():
            if example.startswith(beginning):
                subprocess.run(
                    [bash, "-c", world.here(first)], cwd=world.home, env=world.env, check=True, capture_output=True
                )
        line = f"cd {world.home} && {world.here(example)}"
        with Terminal("-c", line, program=[bash], env=world.env, columns=120) as terminal:
            if example == "watchword login --url https://tokens.example.org":
                approve_shown(world.server, terminal)
            code = answered(terminal)
        expected = next((code for beginning, code in CODES.items() if example.startswith(beginning)), 0)
        assert code == expected, f"{example}\n{terminal.text}"
        assert "Traceback" not in terminal.text


def answered(terminal: Terminal) -> int:
    """Answer yes to every prompt."""
    terminal.enter("y\n")
    return terminal.finish(60)


def test_no_example_is_run_elsewhere_that_is_none() -> None:
    assert ELSEWHERE.keys() <= set(EXAMPLES)
    assert len(EXAMPLES) >= len(COMMANDS)
