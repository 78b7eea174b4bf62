"""`watchword login`: the token is stored in a private file and sent only to its server."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psutil
import pytest

from tests.cli.in_process import watchword
from tests.support import server as server_process
from tests.support.clock import SetClock
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server
from tests.support.terminal import WATCHWORD, Terminal
from tests.support.waiting import SECONDS

Run = Callable[..., "CompletedProcess[str]"]


class Desk:
    """A home folder and its login."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder / "config"
        self.kept = self.folder / "watchword"
        self.server = server
        self.env = {"XDG_CONFIG_HOME": str(self.folder)}

    def run(self, *words: str, env: dict[str, str] | None = None, **how: Any) -> "CompletedProcess[str]":
        return watchword(*words, env={**self.env, **(env or {})}, **how)

    def says(self, *words: str, **how: Any) -> str:
        ran = self.run(*words, **how)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def refuses(self, *words: str, **how: Any) -> str:
        ran = self.run(*words, **how)
        assert ran.returncode in {1, 2}
        assert ran.stdout == ""
        assert len(ran.stderr.splitlines()) == 1
        return ran.stderr

    def token(self, of: str = ADMIN, **fields: Any) -> str:
        made: str = self.server.create(ADMIN, of=of, **fields)["accessToken"]
        return made

    def sign_in(self, name: str = "work", of: str = ADMIN, **fields: Any) -> str:
        token = self.token(of, **fields)
        self.says("login", "--profile", name, "--url", self.server.url, stdin=token)
        return token

    def whoami(self, *words: str, **how: Any) -> str:
        found: str = json.loads(self.says("whoami", "--json", *words, **how))["urn"]
        return found


@pytest.fixture
def desk(tmp_path: Path, server: Server) -> Desk:
    return Desk(tmp_path, server)


def test_login_prints_actor_expiry_and_privileges(desk: Desk, actor: str) -> None:
    desk.server.grant(actor, privileges=("MANAGE_POLICIES",))
    told = desk.says("login", "--url", desk.server.url, stdin=desk.token(actor, duration="ONE_DAY") + "\n")
    shown = dict(line.split(maxsplit=1) for line in told.splitlines())
    assert shown["URN"] == actor
    assert "MANAGE_POLICIES" in shown["Privileges"].split(",")
    assert shown["Profile"] == desk.server.url.removeprefix("http://")
    assert "Expires" in shown
    assert desk.whoami() == actor


def test_login_stores_the_token_in_a_private_file(desk: Desk) -> None:
    token = desk.token()
    ran = desk.run("login", "--profile", "work", "--url", desk.server.url, stdin=token)
    assert token not in ran.stdout + ran.stderr
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in desk.kept.iterdir()}
    assert files == {"profiles.json": 0o600, "work.token": 0o600}
    assert stat.S_IMODE(desk.kept.stat().st_mode) == 0o700
    assert token in (desk.kept / "work.token").read_text()
    assert token not in (desk.kept / "profiles.json").read_text()
    assert token not in desk.says("profile", "list") + desk.says("profile", "list", "--json")


def test_rejected_token_does_not_replace_the_stored_one(desk: Desk, actor: str) -> None:
    desk.sign_in("work", actor)
    dead = desk.server.create(ADMIN)
    desk.server.revoke(dead["metadata"]["id"])
    said = desk.refuses("login", "--profile", "work", stdin=dead["accessToken"])
    assert "revoked" in said
    assert desk.whoami() == actor


@pytest.mark.parametrize("typed", ["", "\n", "x" * 70_000], ids=["nothing", "a blank line", "too much"])
def test_malformed_token_is_not_sent(desk: Desk, typed: str) -> None:
    said = desk.refuses("login", "--url", f"http://127.0.0.1:{free_port()}", stdin=typed)
    assert said.startswith("watchword: Standard input must hold a token and nothing else. Try 'watchword login --help'")


def test_login_prompts_for_the_token_without_echo(desk: Desk, actor: str) -> None:
    token = desk.token(actor)
    words = ("login", "--token", "--url", desk.server.url, "--profile", "tty")
    with Terminal(*words, program=WATCHWORD, env=desk.env) as terminal:
        terminal.wait_for("(not shown)")
        assert token not in " ".join(psutil.Process(terminal.process.pid).cmdline())
        terminal.enter(token + "\n")
        assert terminal.finish() == 0
    assert token not in terminal.output
    assert actor in terminal.text
    assert desk.whoami() == actor


def test_ctrl_c_at_the_prompt_exits_with_130(desk: Desk) -> None:
    with Terminal("login", "--token", "--url", desk.server.url, env=desk.env) as terminal:
        terminal.wait_for("(not shown)")
        assert terminal.interrupt() == 130
    assert terminal.text.endswith("\n")
    assert "Traceback" not in terminal.text
    assert not desk.kept.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_readable_token_file_is_rejected_with_a_fix(desk: Desk, mode: int) -> None:
    desk.sign_in()
    file = desk.kept / "work.token"
    file.chmod(mode)
    said = desk.refuses("whoami")
    assert f"(mode {mode:04o})" in said
    assert f"chmod 600 {file}" in said
    file.chmod(0o600)
    assert desk.whoami() == ADMIN


def test_writable_profiles_file_is_rejected(desk: Desk) -> None:
    desk.sign_in()
    (desk.kept / "profiles.json").chmod(0o622)
    assert "chmod 600" in desk.refuses("whoami")
    (desk.kept / "profiles.json").chmod(0o600)
    desk.kept.chmod(0o777)
    assert "chmod 700" in desk.refuses("login", "--url", desk.server.url, stdin=desk.token())


def test_named_caller_overrides_the_profile(desk: Desk, actor: str, tmp_path: Path) -> None:
    desk.sign_in("work", actor)
    other = desk.token(f"{actor}-2")
    file = tmp_path / "token"
    file.write_text(other)
    assert desk.whoami() == actor
    assert desk.whoami("--as", f"{actor}-3") == f"{actor}-3"
    assert desk.whoami("--token-file", str(file)) == f"{actor}-2"
    assert desk.whoami(env={"WATCHWORD_TOKEN": other}) == f"{actor}-2"


def test_profile_flag_overrides_environment_and_current_profile(desk: Desk, actor: str) -> None:
    for number in (1, 2, 3):
        desk.sign_in(f"p{number}", f"{actor}-{number}")
    assert desk.whoami() == f"{actor}-3"
    assert desk.whoami(env={"WATCHWORD_PROFILE": "p2"}) == f"{actor}-2"
    assert desk.whoami("--profile", "p1", env={"WATCHWORD_PROFILE": "p2"}) == f"{actor}-1"
    assert "p1 is the current" in desk.says("profile", "use", "p1")
    assert desk.whoami() == f"{actor}-1"


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (("--profile", "work", "--as", ADMIN), {}, "--as and --profile each name a caller"),
        (("--profile", "work"), {"WATCHWORD_TOKEN": "x"}, "WATCHWORD_TOKEN and --profile each name a caller"),
        (("--profile", "work", "--url", "http://127.0.0.1:1"), {}, "--url and --profile name two servers"),
        (("--profile", "absent"), {}, "There is no profile absent. Profiles: work."),
        ((), {"WATCHWORD_PROFILE": "absent"}, "There is no profile absent."),
    ],
)
def test_two_callers_are_a_usage_error(desk: Desk, words: tuple[str, ...], env: dict[str, str], said: str) -> None:
    desk.sign_in()
    ran = desk.run("whoami", *words, env=env)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_stored_token_is_sent_only_to_its_server(desk: Desk, actor: str, make_server: Callable[..., Server]) -> None:
    desk.sign_in("work", actor)
    other = make_server()
    ran = desk.run("whoami", "--url", other.url)
    assert ran.returncode == 2
    assert "Who is calling?" in ran.stderr
    desk.says("login", "--url", other.url, stdin=other.create(ADMIN, of=f"{actor}-2")["accessToken"])
    assert desk.whoami("--url", other.url + "/") == f"{actor}-2"
    assert desk.whoami(env={"WATCHWORD_URL": desk.server.url}) == actor


def test_profile_name_of_another_server_is_not_overwritten(
    desk: Desk, actor: str, make_server: Callable[..., Server]
) -> None:
    other = make_server()
    name = f"127.0.0.1:{other.port}"
    desk.sign_in(name, actor)
    for _ in range(2):
        desk.says("login", "--url", other.url, stdin=other.create(ADMIN, of=f"{actor}-2")["accessToken"])
    assert [desk.whoami("--profile", one) for one in (name, f"{name}-2")] == [actor, f"{actor}-2"]
    assert f"{name}-3" not in desk.says("profile", "list")
    desk.says("logout", "--profile", name)
    desk.says("login", "--url", other.url, stdin=other.create(ADMIN, of=f"{actor}-2")["accessToken"])
    assert desk.says("profile", "list").count(other.url) == 1


def test_interrupted_login_stores_no_token_for_another_server(desk: Desk, make_server: Callable[..., Server]) -> None:
    before = desk.sign_in("work")
    profiles = desk.kept / "profiles.json"
    kept = json.loads(profiles.read_text())
    kept["profiles"] |= {f"other-{n}": {"url": "https://tokens.example.org"} for n in range(100)}
    profiles.write_text(json.dumps(kept))
    other = make_server()
    # The token can be written, but the list of profiles cannot: it exceeds the file size limit.
    command = [sys.executable, "-m", "watchword", "login", "--profile", "work", "--url", other.url]
    ran = subprocess.run(
        ["sh", "-c", 'ulimit -f 4; exec "$@"', "sh", *command],
        env={**os.environ, **desk.env},
        input=other.create(ADMIN)["accessToken"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 1
    assert (desk.kept / "work.token").read_text().strip() == before
    assert desk.whoami("--profile", "work") == ADMIN
    assert sorted(path.name for path in desk.kept.iterdir()) == ["profiles.json", "work.token"]


def test_two_profiles_of_one_server_need_a_name(desk: Desk, actor: str, make_server: Callable[..., Server]) -> None:
    for name in ("a", "b"):
        desk.sign_in(name, actor)
    other = make_server()
    desk.says("login", "--profile", "c", "--url", other.url, stdin=other.create(ADMIN)["accessToken"])
    ran = desk.run("whoami", "--url", desk.server.url)
    assert ran.returncode == 2
    assert "a, b. Choose one with --profile" in ran.stderr
    assert desk.whoami("--profile", "b") == actor


def test_profile_list_shows_current_and_expiry(desk: Desk) -> None:
    desk.sign_in("home", duration="ONE_DAY")
    desk.sign_in("work", duration="ONE_WEEK")
    (desk.kept / "home.token").chmod(0o644)
    listed = {one["name"]: one for one in json.loads(desk.says("profile", "list", "--json"))}
    assert {name: one["current"] for name, one in listed.items()} == {"home": False, "work": True}
    assert "chmod 600" in listed["home"]["problem"]
    assert listed["work"]["expiresAt"] > listed["work"]["expiresAt"][:4]
    assert {one["url"] for one in listed.values()} == {desk.server.url}


def test_logout_that_keeps_the_token_only_deletes_it_here(desk: Desk) -> None:
    token = desk.sign_in()
    assert "still valid" in desk.says("logout", "--keep-token")
    assert not (desk.kept / "work.token").exists()
    assert desk.server.verify(token).status_code == 204
    assert "You are not signed in" in desk.refuses("logout")


def test_logout_revokes_the_token(desk: Desk) -> None:
    token = desk.sign_in()
    assert "revoked" in desk.says("logout")
    assert desk.server.verify(token).status_code == 401
    assert not (desk.kept / "work.token").exists()


def test_failed_revocation_keeps_the_stored_token(desk: Desk, make_server: Callable[..., Server]) -> None:
    away = make_server()
    desk.says("login", "--profile", "away", "--url", away.url, stdin=away.create(ADMIN)["accessToken"])
    away.stop()
    said = desk.refuses("logout")
    assert "cannot be reached" in said
    assert "--keep-token" in said
    assert (desk.kept / "away.token").exists()


def test_dead_profile_token_suggests_login(desk: Desk) -> None:
    made = desk.server.create(ADMIN)
    desk.says("login", "--profile", "work", "--url", desk.server.url, stdin=made["accessToken"])
    desk.server.revoke(made["metadata"]["id"])
    assert "Sign in again: watchword login --profile work" in desk.refuses("token", "list")


def test_token_near_expiry_prints_how_to_renew_it(desk: Desk, tmp_path: Path) -> None:
    clock = SetClock(tmp_path)
    clock.advance(6_000)
    token = desk.token(durationIso="PT2H", duration=None)
    desk.says("login", "--profile", "work", "--url", desk.server.url, stdin=token)
    assert desk.run("whoami").stderr == ""
    late = server_process.watchword("whoami", env={**desk.env, **clock.env})
    assert late.returncode == 0
    (line,) = late.stderr.splitlines()
    assert "expires in" in line
    assert "watchword token rotate --profile work" in line


def test_rotation_without_id_renews_the_stored_token(desk: Desk, actor: str) -> None:
    old = desk.sign_in("work", actor)
    desk.server.grant(actor)
    shown = json.loads(desk.says("token", "rotate", "--json", "--grace", "0s"))
    assert shown["file"] == str(desk.kept / "work.token")
    new = (desk.kept / "work.token").read_text().strip()
    assert new != old
    assert stat.S_IMODE((desk.kept / "work.token").stat().st_mode) == 0o600
    assert desk.server.verify(old).status_code == 401
    assert desk.whoami() == actor


def test_rotation_without_id_or_profile_says_what_to_pass(desk: Desk) -> None:
    assert "Pass the ID of a token or --file FILE" in desk.refuses("token", "rotate", "--url", desk.server.url)


def test_damaged_profiles_file_is_reported_unless_a_caller_is_named(desk: Desk) -> None:
    desk.kept.mkdir(parents=True, mode=0o700)
    (desk.kept / "profiles.json").write_text("{")
    assert "is not a profiles file" in desk.refuses("whoami")
    assert desk.whoami("--url", desk.server.url, "--as", ADMIN) == ADMIN


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "x" * 101, "a b"])
def test_profile_name_that_looks_like_a_path_is_rejected(desk: Desk, name: str) -> None:
    ran = desk.run("login", "--profile", name, "--url", desk.server.url, stdin="x")
    assert ran.returncode == 2
    assert "--profile must be" in ran.stderr


def test_login_reports_an_overriding_variable(desk: Desk) -> None:
    ran = desk.run("login", "--url", desk.server.url, stdin=desk.token(), env={"WATCHWORD_TOKEN": desk.token()})
    assert ran.returncode == 0
    assert "WATCHWORD_TOKEN is set" in ran.stderr


def test_missing_home_does_not_prevent_naming_a_caller(desk: Desk) -> None:
    homeless = {"XDG_CONFIG_HOME": "/dev/null"}
    assert desk.whoami(env={**homeless, "WATCHWORD_TOKEN": desk.token(), "WATCHWORD_URL": desk.server.url}) == ADMIN
    assert "Who is calling?" in desk.refuses("whoami", env=homeless)
    assert "Not a directory" in desk.refuses("login", "--url", desk.server.url, stdin=desk.token(), env=homeless)
