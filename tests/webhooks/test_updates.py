"""Two updates of one webhook at the same time: what one changes, the other leaves as it is. On both databases."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.support.postgres import Address, home
from tests.support.server import ADMIN, Server, plain_client

CREATE = "mutation ($input: CreateWebhookInput!) { createWebhook(input: $input) { secret } }"
UPDATE = "mutation ($id: String!, $input: UpdateWebhookInput!) { updateWebhook(id: $id, input: $input) { state } }"
GET = "query ($id: String!) { getWebhook(id: $id) { name actions actorUrns } }"
ROUNDS = 20


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def anywhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers, so that two updates run at the same time."""
    folder, flags = tmp_path_factory.mktemp("updates"), ("--workers", "2", "--local-mode", "on")
    allowed = {"WATCHWORD_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}
    if request.param == "sqlite":
        with Server(folder, *flags, env=allowed) as server:
            yield server
        return
    postgres: Address = request.getfixturevalue("postgres")
    with home(postgres, folder) as place, Server(folder, *flags, env=place.env | allowed) as server:
        yield server


def test_concurrent_updates_of_a_webhook_are_both_kept(anywhere: Server) -> None:
    made = {"id": "both", "name": "both", "url": "http://127.0.0.1:9/hook", "enabled": False}
    anywhere.ask(CREATE, {"input": made}, actor=ADMIN)

    def update(input: dict[str, Any]) -> None:  # noqa: A002 - the schema's word
        with closing(plain_client(anywhere.url)) as client:
            anywhere.ask(UPDATE, {"id": "both", "input": input}, actor=ADMIN, client=client)

    with ThreadPoolExecutor(2) as threads:
        for number in range(ROUNDS):
            actions = ["token.created", "token.revoked"][: 1 + number % 2]
            actors = [f"urn:li:corpuser:{number}"]
            list(threads.map(update, ({"actions": actions}, {"actorUrns": actors})))
            kept = anywhere.ask(GET, {"id": "both"}, actor=ADMIN)["getWebhook"]
            assert (kept["actions"], kept["actorUrns"]) == (actions, actors)
