"""Links in the documentation work, and every name in it exists."""

import re
import subprocess
import sys
from pathlib import Path

import click
from graphql import build_schema

from tests.support.pages import ROOT, links, pages
from tests.support.server import ADMIN, Server
from tests.support.waiting import SECONDS, until
from watchword.app.graphql_schema import sdl
from watchword.cli import cli
from watchword.index.engine import Counters
from watchword.index.rules import FIELDS, State
from watchword.settings import _OTHERS, TABLE
from watchword.tokens.filters import Condition, Field, SortField

REFERENCE = ROOT / "docs/reference"


def test_every_relative_link_names_an_existing_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages()
        for link in links(page)
        if not (page.parent / link.partition("#")[0]).exists()
    ]
    assert broken == []


def test_every_anchor_in_a_link_is_a_heading_of_its_page() -> None:
    broken = []
    for page in pages():
        for link in links(page):
            path, _, part = link.partition("#")
            if part and part not in _headings(page.parent / path if path else page):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def _headings(page: Path) -> list[str]:
    """Anchors of the headings: lower case, hyphens for spaces, no punctuation."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found]


def test_every_page_is_linked_from_another_page() -> None:
    written = [page for page in pages() if page.name != "index.md"]  # which lists all of them
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in written for link in links(page)}
    first = {"README.md", "index.md"}
    assert [page for page in pages() if page.name not in first and page.resolve() not in linked] == []


def test_generated_pages_are_current() -> None:
    ran = _reference("--check")
    assert ran.returncode == 0, ran.stderr


def test_reference_check_names_outdated_pages(tmp_path: Path) -> None:
    for page in ("privileges.md", "errors.md", "cli.md"):
        (tmp_path / page).write_bytes((REFERENCE / page).read_bytes())
    (tmp_path / "settings.md").write_text("# Settings\n")
    ran = _reference("--check", "--folder", str(tmp_path))
    assert ran.returncode == 1
    assert "settings.md" in ran.stderr
    assert "cli.md" not in ran.stderr


def _reference(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/reference"), *flags],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_settings_page_lists_every_setting() -> None:
    text = (REFERENCE / "settings.md").read_text()
    assert re.findall(r"^## `(WATCHWORD_\w+)`$", text, re.MULTILINE) == [setting.variable for setting in TABLE]


def test_graphql_page_lists_every_root_field_with_its_arguments() -> None:
    text = (REFERENCE / "graphql.md").read_text()
    schema = build_schema(sdl())
    assert schema.query_type is not None
    assert schema.mutation_type is not None
    for name, root in (schema.query_type.fields | schema.mutation_type.fields).items():
        assert re.search(rf"`{name}\b", text), name
        for argument in root.args:
            assert re.search(rf"`{name}\({argument}\b|`{name}\([^`]*\b{argument}: ", text), f"{name}({argument})"


def test_filters_page_lists_every_field_with_its_conditions() -> None:
    text = (REFERENCE / "filters.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", text, re.MULTILINE))
    assert set(rows) == {field.word for field in Field}
    for field in Field:
        named = {Condition(word) for word in re.findall(r"`([A-Z_]+)`", rows[field.word])}
        assert named == set(field.kind.conditions), field.word
    assert all(f"`{sort.value.word}`" in text.partition("## Order")[2] for sort in SortField)


def test_operations_page_lists_every_field_counter_state_and_aspect() -> None:
    text = (REFERENCE / "operations.md").read_text()
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    first = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert set(FIELDS) | {state.value for state in State} <= first
    assert all(counter in text for counter in Counters().shown())
    known = next(setting.default for setting in TABLE if setting.name == "known_aspects")
    assert re.findall(r"^- `(\w+\.\w+)`$", text, re.MULTILINE) == known.split(",")


def test_operations_page_lists_every_action(server: Server) -> None:
    text = (REFERENCE / "operations.md").read_text()
    refused = server.http.post(
        "/operations", headers={"Authorization": f"Bearer {server.create(ADMIN)['accessToken']}"}, json={}
    )
    assert re.findall(r"^\| \[`(\w+)`\]", text, re.MULTILINE) == refused.json()["error"]["actions"]


def test_http_page_lists_only_served_addresses(server: Server) -> None:
    text = (REFERENCE / "http.md").read_text()
    rows = re.findall(r"^\| `([A-Z]+) (/\S*)` \|", text, re.MULTILINE)
    assert len(rows) > 8
    for method, path in rows:
        # Without an identity provider there is nothing to sign in at; tests/sign_in has one.
        missing = {404, 405} if not path.startswith("/sign-in") else {405}
        there = path.replace("/assets/{digest}/", server.asset(""))
        assert server.http.request(method, there).status_code not in missing, f"{method} {path}"


def test_http_page_lists_only_exported_metrics(server: Server, actor: str) -> None:
    text = (REFERENCE / "http.md").read_text()
    named = set(re.findall(r"`(watchword_\w+)`", text))
    made = server.create(ADMIN, of=actor)
    server.revoke(made["metadata"]["id"])
    until(lambda: "watchword_tokens_unused{" in server.metrics(), "the tokens are counted")
    measured = server.metrics()
    assert len(named) > 5
    assert [name for name in sorted(named) if not re.search(rf"^{name}(_count)?[ {{]", measured, re.MULTILINE)] == []


def test_no_page_installs_watchword_from_a_registry() -> None:
    """It is not published, so that anyone could claim the name. `uv run` takes it from the clone."""
    files = [*pages(), *(ROOT / "src").rglob("*.py"), *(ROOT / "deploy").rglob("*"), ROOT / "Containerfile"]
    bare = re.compile(
        r"\b(pip|pipx|uv(?! run watchword)|uvx)\b[^\n`]*[ '\"]watchword(\[[\w,]+\])?(?! @ |[\w./\[-])|\buvx watchword"
    )
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in files
        if file.is_file()
        for match in bare.finditer(file.read_text())
    ]
    assert found == []


def test_every_setting_in_the_documentation_exists() -> None:
    known = {setting.variable for setting in TABLE} | {one.file_variable for one in TABLE if one.secret} | _OTHERS
    for page in pages():
        named = set(re.findall(r"\bWATCHWORD_[A-Z_]*[A-Z]\b", page.read_text()))
        assert named - known <= {"WATCHWORD_SERVICE"}, page


def test_every_command_and_flag_in_the_documentation_exists() -> None:
    for page in pages():
        for line in re.findall(r"^ *(?:\$ )?(?:sudo )?watchword ((?!\d)\S.*)$", _code(page), re.MULTILINE):
            command, flags = _command(line.partition(" | ")[0].split())
            assert command is not None, f"{page}: {line}"
            options = {option for parameter in command.params for option in parameter.opts}
            assert flags <= options | {"--help"}, f"{page}: {line}"


def test_every_wait_in_the_documentation_has_a_timeout_and_prints_the_log() -> None:
    waits = [
        (page, line) for page in pages() for line in _code(page).splitlines() if re.search(r"\buntil .*; do\b", line)
    ]
    assert len(waits) > 5
    for page, line in waits:
        assert re.fullmatch(r"timeout \d+ sh -c 'until [^']+; do sleep [\d.]+; done' \|\| cat .+\.log", line), (
            f"{page}: {line}"
        )


def _code(page: Path) -> str:
    found = re.findall(r"^```(?:sh|console)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return "\n".join(found).replace("\\\n", " ")


def _command(words: list[str]) -> tuple[click.Command | None, set[str]]:
    command: click.Command = cli
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        if found is None:
            return None, set()
        command = found
    return command, {word for word in words if word.startswith("--")}


def test_every_row_of_the_threats_page_names_an_existing_test() -> None:
    rows = [line for line in (ROOT / "docs/explanation/threats.md").read_text().splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith("| Attack |")]
    assert len(claims) > 50
    for claim in claims:
        cited = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", claim)
        assert cited, claim
        for path, name in cited:
            assert re.search(rf"def {name}\(", (ROOT / path).read_text()), f"{path}::{name}"
