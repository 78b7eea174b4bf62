"""The list of tokens by Strawberry, as one would write it: `python -m bench.against_strawberry PORT FOLDER`.

It runs in an environment of its own, on granian with Watchword's flags, over the rows of a Watchword's store: the
bearer by one point read of its digest, the total and the page by plain SQL, asynchronous resolvers, the caches of
parsed and validated documents on, the answer by orjson. The salt of the digest comes in by the environment.
"""

import os
import sys
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import orjson
import strawberry
from granian.constants import Interfaces
from strawberry.asgi import GraphQL
from strawberry.extensions import ParserCache, ValidationCache

from bench.bare import serve_app
from watchword.settings import load

SALT = "BENCH_SALT"

_BEARER = "SELECT actor_urn FROM tokens WHERE id = ? AND revoked_at IS NULL AND expires_at > unixepoch() * 1000"
_TOTAL = "SELECT total FROM token_totals WHERE kind = 'all' AND urn = ''"
_PAGE = """SELECT id, actor_urn FROM tokens WHERE revoked_at IS NULL ORDER BY expires_at DESC, id LIMIT ? OFFSET ?"""


@strawberry.input
class Filter:
    field: str
    value: str


@strawberry.input
class ListAccessTokensInput:
    start: int = 0
    count: int = 20
    filters: list[Filter] = strawberry.field(default_factory=list)


@strawberry.type
@dataclass
class Token:
    urn: str
    id: str
    actorUrn: str  # noqa: N815 - as the interface names it


@strawberry.type
@dataclass
class Tokens:
    start: int
    count: int
    total: int
    tokens: list[Token]


async def list_tokens(info: strawberry.Info, input: ListAccessTokensInput) -> Tokens:  # noqa: A002 - the argument's name
    file = info.context["file"]
    if info.context["actor"] is None:
        raise PermissionError("No valid bearer.")
    rows = file.execute(_PAGE, (input.count, input.start))
    tokens = [Token(urn=f"urn:li:serviceAccessToken:{one}", id=one, actorUrn=actor) for one, actor in rows]
    return Tokens(start=input.start, count=input.count, total=file.execute(_TOTAL).get, tokens=tokens)


@strawberry.type
class Query:
    listAccessTokens: Tokens = strawberry.field(resolver=list_tokens)  # noqa: N815 - as the interface names it


class Served(GraphQL):  # type: ignore[misc] # lives in an environment of its own
    """With the caller in the context."""

    def __init__(self, schema: strawberry.Schema, file: apsw.Connection, salt: bytes) -> None:
        super().__init__(schema)
        self._file = file
        self._salt = salt

    async def get_context(self, request: Any, response: Any = None) -> Any:
        token = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        digest = b64encode(sha256(token + self._salt).digest()).decode()
        return {"file": self._file, "actor": self._file.execute(_BEARER, (digest,)).get}

    def encode_json(self, data: object) -> bytes:
        return orjson.dumps(data)


def main(port: str, folder: str) -> None:
    settings = load({"port": port, "data_dir": folder}, {})
    schema = strawberry.Schema(query=Query, extensions=[ParserCache(), ValidationCache()])
    salt = bytes.fromhex(os.environ[SALT])

    class Late:
        """A file is opened in the process that uses it."""

        app: Served | None = None

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if self.app is None:
                path = Path(folder, "watchword.db")
                self.app = Served(schema, apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE), salt)
            await self.app(scope, receive, send)

    serve_app(Late(), settings, Interfaces.ASGI)


if __name__ == "__main__":
    main(*sys.argv[1:])
