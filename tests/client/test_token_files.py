"""A token file that renews itself always returns a live token."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.server import ADMIN, Server, plain_client
from tests.support.waiting import SECONDS
from watchword.client import AsyncClient, Client, Secret, TokenFile, Unauthenticated

ALWAYS = timedelta(microseconds=1)


@pytest.fixture
def file(server: Server, actor: str, tmp_path: Path) -> Path:
    server.grant(actor)
    made = tmp_path / "token"
    made.write_text(server.create(ADMIN, of=actor, duration="ONE_DAY")["accessToken"] + "\n")
    made.chmod(0o600)
    return made


def test_token_whose_time_has_come_is_replaced_before_it_is_used(server: Server, actor: str, file: Path) -> None:
    old = file.read_text().strip()
    with Client(server.url, token=TokenFile(file, server.url, after=ALWAYS, grace="PT0S")) as client:
        assert client.me().urn == actor
    assert file.read_text().strip() != old
    assert server.verify(old).status_code == 401
    assert server.verify(file.read_text().strip()).status_code == 204


def test_token_whose_time_has_not_come_is_left_as_it_is(server: Server, actor: str, file: Path) -> None:
    old = file.read_text()
    with Client(server.url, token=TokenFile(file, server.url)) as client:
        assert client.me().urn == actor
    assert file.read_text() == old


def test_token_is_due_when_its_part_is_spent(server: Server, actor: str, file: Path) -> None:
    kept = TokenFile(file, server.url, after=0.5)
    token = kept.read()
    assert not kept.is_due(token)
    assert TokenFile(file, server.url, after=1e-9).is_due(token)
    assert not kept.is_due(Secret("a.b.c"))


def test_replaced_token_file_is_used_from_the_next_call(server: Server, actor: str, file: Path) -> None:
    with Client(server.url, token=TokenFile(file, server.url)) as client:
        assert client.me().urn == actor
        file.write_text(server.create(ADMIN, of=f"{actor}-2")["accessToken"])
        assert client.me().urn == f"{actor}-2"


def test_asynchronous_client_takes_it_too(server: Server, actor: str, file: Path) -> None:
    old = file.read_text()

    async def ask() -> str:
        token = TokenFile(file, server.url, after=ALWAYS)
        async with AsyncClient(server.url, token=token) as client:
            return (await client.me()).urn

    assert asyncio.run(ask()) == actor
    assert file.read_text() != old


def test_failed_renewal_keeps_the_old_token_and_reports_the_error(server: Server, actor: str, tmp_path: Path) -> None:
    file = tmp_path / "limited"
    file.write_text(server.create(ADMIN, of=actor, scopes=["GET_ES_TASK_STATUS_PRIVILEGE"])["accessToken"])
    kept = TokenFile(file, server.url, after=ALWAYS)
    token = kept.read()
    assert token.reveal() == file.read_text()
    assert kept.problem is not None
    assert token.reveal() not in kept.problem
    assert server.verify(token.reveal()).status_code == 204
    assert not kept.is_due(token)  # until some time has passed


def test_concurrent_readers_get_a_live_token(server: Server, file: Path) -> None:
    kept = TokenFile(file, server.url, after=ALWAYS)
    seen: list[int] = []

    def use() -> None:
        with plain_client() as http:
            for _ in range(5):
                sent = {"Authorization": f"Bearer {kept.read().reveal()}"}
                seen.append(http.get(f"{server.url}/auth", headers=sent).status_code)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert seen == [204] * 20


def test_token_file_is_readable_while_the_server_is_down(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server()
    file = tmp_path / "token"
    file.write_text(server.create(ADMIN)["accessToken"])
    server.stop()
    kept = TokenFile(file, server.url, after=ALWAYS, timeout=5)
    assert kept.read().reveal() == file.read_text()
    assert "cannot be reached" in str(kept.problem)


def test_dead_token_in_a_file_raises_the_usual_error(server: Server, file: Path) -> None:
    server.revoke(
        server.ask(
            "query ($t: String!) { getAccessTokenMetadata(token: $t) { id } }",
            {"t": file.read_text().strip()},
            actor=ADMIN,
        )["getAccessTokenMetadata"]["id"]
    )
    with Client(server.url, token=TokenFile(file, server.url)) as client, pytest.raises(Unauthenticated):
        client.me()


@pytest.mark.parametrize("after", [0, 1, -0.5, timedelta(0)])
def test_invalid_renewal_time_is_rejected(file: Path, after: float | timedelta) -> None:
    with pytest.raises(ValueError, match="after must be"):
        TokenFile(file, after=after)


def test_token_file_repr_hides_the_token(file: Path) -> None:
    kept = TokenFile(file)
    assert file.read_text().strip() not in f"{kept!r} {vars(kept)}"
