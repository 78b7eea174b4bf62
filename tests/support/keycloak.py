"""Keycloak, set up by the commands of docs/how-to/sign-in.md. It takes a minute or more to start."""

import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.keycloak import install, server
from bench.peers.processes import NotInstalled
from tests.support.identity_providers import ProviderUser
from tests.support.pages import ADDRESS, ROOT, environment
from tests.support.ports import reserved_port
from tests.support.system import missing, need_program
from tests.support.waiting import SECONDS

PAGE = ROOT / "docs/how-to/sign-in.md"
KEYCLOAK = "http://localhost:8180"
"""Its address in the page."""
DATABASE = "dev-mem"
ADMINISTRATOR = "admin"


class Keycloak:
    """A running one. `set_up` gives the settings of the Watchword that it is set up for."""

    def __init__(self, folder: Path, url: str, password: str) -> None:
        self.url = url
        self._folder = folder
        # Java does not read HOME. There kcadm.sh keeps which server it is signed in to.
        options = f"-XX:TieredStopAtLevel=1 -Duser.home={folder}"
        self._environment = environment(install(DATABASE) / "bin", KC_CLI_PASSWORD=password, KC_OPTS=options)

    def set_up(self, watchword: str) -> dict[str, str]:
        """Run the page's commands, for a Watchword at this address; returns the settings that the page gives it."""
        *commands, start = _blocks()
        for command in commands:
            self.run(self._here(command, watchword))
        settings = dict(re.findall(r"^export (WATCHWORD_\w+)=(.*)$", self._here(start, watchword), re.MULTILINE))
        (policies,) = re.findall(r"^watchword serve --policy-file (\S+)$", start, re.MULTILINE)
        files = {"WATCHWORD_OIDC_CLIENT_SECRET_FILE": "oidc-secret", "WATCHWORD_POLICY_FILE": policies}
        return settings | {name: str(self._folder / file) for name, file in files.items()}

    def _here(self, command: str, watchword: str) -> str:
        return command.replace(KEYCLOAK, self.url).replace(ADDRESS, watchword)

    def run(self, command: str) -> str:
        """A command of the shell, with `kcadm.sh` signed in by the page; returns its output."""
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}\n{(self._folder / 'log').read_text()[-5_000:]}"
        return ran.stdout

    def set_groups(self, user: ProviderUser, *groups: str) -> None:
        """What a later sign-in says."""
        (number,) = self._ids("users", f"username={user.name}")
        for left in self._ids(f"users/{number}/groups"):
            self.run(f"kcadm.sh delete users/{number}/groups/{left} -r company")
        for name in groups:
            (joined,) = self._ids("groups", f"search={name}")
            self.run(f"kcadm.sh update users/{number}/groups/{joined} -r company -n -b '{{}}'")

    def _ids(self, path: str, query: str = "max=100") -> list[str]:
        return self.run(f"kcadm.sh get {path} -r company -q {query} --fields id --format csv --noquotes").split()


def page_users() -> dict[str, ProviderUser]:
    """The users that the page makes."""
    made = re.findall(r'username=(\w+) .*?"value":"([^"]+)"', PAGE.read_text().replace("\\\n", " "))
    return {name: ProviderUser(name, password) for name, password in made}


def _blocks() -> list[str]:
    section = PAGE.read_text().partition("\n## Keycloak\n")[2].partition("\n## ")[0]
    return re.findall(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@contextmanager
def running_keycloak(folder: Path) -> Iterator[Keycloak]:
    """With its data in memory; it ends with this process. `localhost` is another site than Watchword's 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    password = secrets.token_urlsafe(16)
    logged = {"log-level": "warn,io.quarkus.http.access-log:info"}
    requests = "-Dquarkus.http.access-log.enabled=true"
    dies = (need_program("setpriv", "util-linux"), "--pdeathsig", "KILL")
    try:
        with reserved_port() as port:
            url = f"http://localhost:{port}"
            with server(folder, DATABASE, url, (ADMINISTRATOR, password), logged, *dies, JAVA_OPTS_APPEND=requests):
                yield Keycloak(folder, url, password)
    except NotInstalled as why:
        missing(f"needs Keycloak: {why}")
