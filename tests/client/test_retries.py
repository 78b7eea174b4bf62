"""Reads are tried again when no answer came; changes only when the server says that it changed nothing."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.both_clients import KINDS, Clients
from tests.support.server import ADMIN, Server
from tests.support.store_file import locked
from tests.support.strangers import cut_line, web_server
from watchword.client import Unavailable, Unreachable, Where
from watchword.client.wire import LONGEST_PAUSE, Call, Tries


def test_a_read_is_tried_again_after_a_cut_line(connect: Clients) -> None:
    with cut_line() as stranger:
        with pytest.raises(Unreachable):
            connect(stranger.url, actor=ADMIN, retries=2).me()
        assert len(stranger.came) == 3


def test_a_read_is_tried_once_where_no_retries_are_wanted(connect: Clients) -> None:
    with cut_line() as stranger:
        with pytest.raises(Unreachable):
            connect(stranger.url, actor=ADMIN, retries=0).me()
        assert len(stranger.came) == 1


def test_a_change_is_never_tried_again_after_a_cut_line(connect: Clients, actor: str) -> None:
    with cut_line() as stranger:
        client = connect(stranger.url, actor=ADMIN, retries=5)
        with pytest.raises(Unreachable):
            client.create_token(actor, "laptop", duration="ONE_DAY")
        with pytest.raises(Unreachable):
            client.revoke_token("x")
        assert len(stranger.came) == 2


def test_a_change_is_not_tried_again_on_the_word_of_a_gateway(connect: Clients, actor: str) -> None:
    with web_server(503) as gateway:
        with pytest.raises(Unreachable):
            connect(gateway.url, actor=ADMIN, retries=5).create_token(actor, "laptop", duration="ONE_DAY")
        assert len(gateway.came) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_refused_by_a_locked_store_is_made_just_once_when_the_store_is_free(
    server: Server, actor: str, kind: str
) -> None:
    """The lock is let go only after a client without retries was told 503, so that the first try of the other
    client, which waited together with it, was refused as well."""

    def make(retries: int) -> str:
        clients = Clients(kind)
        try:
            client = clients(server.url, actor=ADMIN, retries=retries)
            return client.create_token(actor, f"{retries}", duration="ONE_DAY").metadata.id
        finally:
            clients.close()

    with ThreadPoolExecutor() as pool:
        with locked(server):
            patient, hasty = pool.submit(make, 50), pool.submit(make, 0)
            assert isinstance(hasty.exception(), Unavailable)
        made = patient.result()
    clients = Clients(kind)
    assert [token.id for token in clients(server.url, actor=ADMIN).tokens(Where("actorUrn", actor))] == [made]
    clients.close()


unavailable = st.builds(
    lambda seconds: Unavailable("x", reason="deadline", code=503, details={}, retry_after=seconds),
    st.none() | st.floats(0, 100),
)


@given(st.booleans(), st.integers(0, 6), st.lists(unavailable | st.builds(Unreachable), min_size=8), st.floats(0, 1))
def test_tries_are_bounded_and_no_pause_is_shorter_than_asked(
    changes: bool, retries: int, failures: list[Unavailable | Unreachable], jitter: float
) -> None:
    tries, pauses = Tries(Call(str, changes=changes), retries, lambda: jitter), []
    for failure in failures:
        pause = tries.pause_after(failure)
        if pause is None:
            break
        assert not (changes and isinstance(failure, Unreachable))
        asked = failure.retry_after if isinstance(failure, Unavailable) else None
        assert (asked or 0) <= pause <= LONGEST_PAUSE * 1.5
        pauses.append(pause)
    assert len(pauses) <= retries
