"""Clients read server and token from the environment and from profiles, like the command line."""

import asyncio
from pathlib import Path

import pytest

from tests.support.server import ADMIN, Server
from watchword.client import AsyncClient, Client, ProfileError, Secret, WatchwordError
from watchword.client.profiles import Profile, Profiles


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without profiles, and an environment without Watchword settings."""
    for name in ("URL", "TOKEN", "PROFILE"):
        monkeypatch.delenv(f"WATCHWORD_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "watchword"


def store(home: Path, name: str, url: str, token: str) -> None:
    Profiles(home).store(Profile(name, url), Secret(token))


def test_environment_names_server_and_token(
    server: Server, actor: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHWORD_URL", server.url)
    monkeypatch.setenv("WATCHWORD_TOKEN", server.create(ADMIN, of=actor)["accessToken"])
    with Client.from_env(retries=0) as client:
        assert client.me().urn == actor
    with Client.from_env(actor=ADMIN) as client:
        assert client.me().urn == ADMIN


def test_profile_names_server_and_token_for_both_clients(server: Server, actor: str, home: Path) -> None:
    store(home, "work", server.url, server.create(ADMIN, of=actor)["accessToken"])

    async def ask() -> str:
        async with AsyncClient.from_profile("work") as client:
            return (await client.me()).urn

    with Client.from_profile("work") as client:
        assert client.me().urn == actor
    assert asyncio.run(ask()) == actor


def test_without_a_token_in_the_environment_the_profile_in_use_counts(
    server: Server, actor: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, "work", server.url, server.create(ADMIN, of=actor)["accessToken"])
    store(home, "other", server.url, server.create(ADMIN, of=f"{actor}-2")["accessToken"])
    with Client.from_env() as client:
        assert client.me().urn == f"{actor}-2", "the profile stored last is the current one"
    monkeypatch.setenv("WATCHWORD_PROFILE", "work")
    with Client.from_env() as client:
        assert client.me().urn == actor


def test_profile_token_is_not_sent_to_another_server(
    server: Server, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, "work", server.url, server.create(ADMIN)["accessToken"])
    monkeypatch.setenv("WATCHWORD_URL", "http://127.0.0.1:1")
    with pytest.raises(WatchwordError, match=r"No credential. Set WATCHWORD_TOKEN"):
        Client.from_env()


def test_missing_unreadable_or_shared_profile_is_an_error_with_the_next_step(server: Server, home: Path) -> None:
    with pytest.raises(ProfileError, match=r"There is no profile work. There are no profiles. Create it: watchword"):
        Client.from_profile("work")
    store(home, "work", server.url, "token")
    (home / "work.token").chmod(0o644)
    with pytest.raises(ProfileError, match=r"Others can read .*chmod 600"):
        Client.from_profile("work")
    (home / "work.token").unlink()
    with pytest.raises(ProfileError, match=r"The token of profile work is missing. Sign in again"):
        Client.from_profile("work")
