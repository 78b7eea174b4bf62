"""PocketBase: signed tokens that it does not keep, and beside them a collection of records that belong to users."""

import base64
import itertools
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from bench.peers.processes import MADE, Running, free_port, had, json_headers, program, run
from bench.peers.work import CREATE, FILLED, LIST, LISTED, OWNERS, REVOKE, VERIFY, Ask, Contender, Work, gather

VERSION = "v0.36.8"
PACKAGE = f"github.com/pocketbase/pocketbase/examples/base@{VERSION}"
INSTALL_SECONDS, START_SECONDS, FILL_SECONDS = 900.0, 30.0, 240
ADMIN = "bench@example.com"
LEAST_COST = 6
"""Of a password's hash: nobody is asked for one under load."""

NAME = "PocketBase on SQLite"
DIFFERS = {
    "": "does not keep its tokens, which are signed; with `synchronous=NORMAL`, a power cut takes its last commits",
    VERIFY: "reading one's own user record by a bearer: the signature is checked with a key of the user's row",
    LIST: "records of a collection with a rule for their owner, as one would build it",
    CREATE: "a record of that collection, by a bearer; nothing is signed, no event is written",
    REVOKE: "deleting such a record; one token alone cannot be revoked, only all of a user's",
}
_RULE = "owner = @request.auth.id"
_KEYS = "/api/collections/keys/records"
_KEPT = '"id":"([^"]+","name":"[^"]+","owner":"[^"]+)"'


def need() -> str:
    """Returns what was installed."""
    go = program("go", "golang-go")
    had("go", lambda folder: _install(go, folder))
    return VERSION


def _install(go: str, folder: Path) -> None:
    run([go, "install", PACKAGE], folder, INSTALL_SECONDS, GOBIN=str(folder))


class PocketBase(Contender):
    def __init__(self, url: str, password: str, running: Running) -> None:
        super().__init__(NAME, url, DIFFERS, running.cpu_seconds)
        with httpx.Client(base_url=url, timeout=30) as client:
            admin = _asked(
                client, "POST", "/api/collections/_superusers/auth-with-password", identity=ADMIN, password=password
            )
            client.headers["Authorization"] = admin["token"]
            users = _settle(client)
        create = Work(self._creations, 200, '"owner":"', kept=_KEPT, keep=self.made.extend)
        self._tokens = _tokens(url, str(admin["token"]), users)
        self._first = {user: token for token, user in self._tokens}
        filling = Work(lambda: itertools.islice(self._creations(), FILLED), 200, create.words, kept=_KEPT, once=True)
        gather(url, filling, FILL_SECONDS)
        self.works = {
            VERIFY: Work(self._verifications, 200, '{"id":"', look=20),
            LIST: Work(self._lists, 200, f'"perPage":{LISTED},', look=20),
            CREATE: create,
            REVOKE: Work(self._revocations, 204, once=True, over=self.ended),
        }

    def _verifications(self) -> Iterator[Ask]:
        return (
            Ask("GET", f"/api/collections/users/records/{user}?fields=id", {"Authorization": f"Bearer {token}"})
            for token, user in self._tokens
        )

    def _lists(self) -> Iterator[Ask]:
        path = f"{_KEYS}?perPage={LISTED}"
        return (Ask("GET", path, {"Authorization": f"Bearer {token}"}) for token, _ in self._tokens)

    def _creations(self) -> Iterator[Ask]:
        for number, (token, user) in enumerate(itertools.cycle(self._tokens)):
            body = json.dumps({"owner": user, "name": f"b{number}", "expires": "2099-01-01 00:00:00.000Z"})
            yield Ask("POST", _KEYS, json_headers(Authorization=f"Bearer {token}"), body)

    def _revocations(self) -> Iterator[Ask]:
        for one in self.made:
            record, *_, owner = one.split('"')
            yield Ask("DELETE", f"{_KEYS}/{record}", {"Authorization": f"Bearer {self._first[owner]}"})


def _asked(client: httpx.Client, method: str, path: str, **body: Any) -> Any:
    answer = client.request(method, path, json=body)
    if answer.status_code >= 300:
        raise SystemExit(f"PocketBase, {path}: {answer.status_code} {answer.text}")
    return answer.json()


def _settle(client: httpx.Client) -> list[str]:
    """A collection with rules, and users; without a log of requests, as Watchword has none of those that succeed."""
    _asked(client, "PATCH", "/api/settings", logs={"maxDays": 0})
    users = _asked(client, "GET", "/api/collections/users")
    for one in users["fields"]:
        if one["type"] == "password":
            one["cost"] = LEAST_COST
    _asked(client, "PATCH", "/api/collections/users", fields=users["fields"])
    fields = [
        {"name": "owner", "type": "relation", "collectionId": users["id"], "required": True, "cascadeDelete": True},
        {"name": "name", "type": "text", "required": True},
        {"name": "expires", "type": "date"},
        {"name": "created", "type": "autodate", "onCreate": True},
    ]
    _asked(
        client,
        "POST",
        "/api/collections",
        name="keys",
        type="base",
        fields=fields,
        indexes=["CREATE INDEX keys_owner ON keys (owner)"],
        **dict.fromkeys(("listRule", "viewRule", "createRule", "deleteRule"), _RULE),
    )
    made = []
    for number in range(OWNERS):
        word = secrets.token_urlsafe(16)
        wanted = {"email": f"owner{number}@example.com", "password": word, "passwordConfirm": word}
        made.append(_asked(client, "POST", "/api/collections/users/records", **wanted)["id"])
    return made


def _tokens(url: str, admin: str, users: list[str]) -> list[tuple[str, str]]:
    """Each with the user whose it is. Those of a user differ by when they end, or they would be one."""

    def asks() -> Iterator[Ask]:
        for number, user in zip(range(FILLED), itertools.cycle(users)):
            body = json.dumps({"duration": 86_400 + number})
            yield Ask("POST", f"/api/collections/users/impersonate/{user}", json_headers(Authorization=admin), body)

    work = Work(asks, 200, '"token":"', kept='"token":"([^"]+)"', once=True)
    return [(token, _user(token)) for token in gather(url, work, FILL_SECONDS)]


def _user(token: str) -> str:
    claims = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["id"])


@contextmanager
def start(folder: Path) -> Iterator[Contender]:
    port, password = free_port(), secrets.token_urlsafe(16)
    url, binary, data = f"http://127.0.0.1:{port}", MADE / "go" / "base", f"--dir={folder / 'data'}"
    run([binary, "superuser", "upsert", ADMIN, password, data, "--dev=false"], folder, START_SECONDS)
    command: list[str | Path] = [
        binary,
        "serve",
        f"--http=127.0.0.1:{port}",
        data,
        "--dev=false",
        f"--publicDir={folder}",
    ]
    with Running(command, folder, url, START_SECONDS) as running:
        yield PocketBase(url, password, running)
