"""The service in this process, open on a data folder: to ask it the same by two ways of execution."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from graphql import GraphQLSchema

from tests.support.server import ADMIN, GENERATE
from watchword.app import wiring
from watchword.app.graphql_endpoint import field_error
from watchword.app.metrics import Metrics
from watchword.app.services import Services
from watchword.authority.callers import Caller
from watchword.authority.limits import Limits
from watchword.authority.policies import Policy, PolicyState
from watchword.authority.privileges import Privilege
from watchword.basics.times import Duration
from watchword.http.graphql.context import Context
from watchword.http.graphql.documents import PreparedDocument
from watchword.http.graphql.fastpath import Fallback, FastPath, Memo
from watchword.http.processor_budget import Meter, ProcessorBudget
from watchword.index.embedded.index_file import prepare as prepare_index
from watchword.journal.preconditions import system_precondition
from watchword.settings import Settings, load
from watchword.tokens.issue_service import Lifetime
from watchword.tokens.rules import TokenRequest, TokenType

HOLDER, VICTIM, NO_ACTOR = (f"urn:li:corpuser:{name}" for name in ("holder", "victim", "nobody"))
# What two stores in equal states make differently: tokens, ids, urns made up, digests, moments.
_MADE = re.compile(
    r"eyJ[\w.-]+|[A-Za-z0-9+/]{43}=|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{64}\b"
    r"|\b1[0-9]{12}\b|\d{4}-\d\d-\d\dT[\d:.]+Z"
)


class Home(NamedTuple):
    services: Services
    callers: list[Caller]


class Furnished(NamedTuple):
    folder: Path
    tokens: list[str]
    ids: list[str]


def settings_of(folder: Path) -> Settings:
    return load({"data_dir": str(folder)}, {})


def furnish(folder: Path) -> Furnished:
    """A data folder with a policy and some tokens: of two actors, limited, derived, replaced, revoked."""
    settings = settings_of(folder)
    wiring.prepare_store(settings)
    prepare_index(settings.index_path)
    asyncio.run(wiring.settle(settings))
    return asyncio.run(_furnish(settings, folder))


async def _furnish(settings: Settings, folder: Path) -> Furnished:
    async with wiring.open_service(settings) as service:
        precondition = system_precondition("test")
        actors = frozenset({HOLDER, VICTIM})
        policy = Policy(
            "urn:li:servicePolicy:held", "held", None, PolicyState.ACTIVE, frozenset({Privilege[GENERATE]}), actors
        )
        await service.store.add_policy(precondition, policy)
        hour, made = Lifetime(Duration.ONE_HOUR), []
        for number, actor in enumerate([HOLDER, HOLDER, VICTIM, VICTIM, VICTIM, ADMIN]):
            limits = Limits(scopes=(GENERATE, "repo:read")) if number == 1 else Limits()
            new = TokenRequest(TokenType.PERSONAL, actor, f"number {number}", "é" if number % 2 else None, limits)
            made.append(await service.issuer.create_unchecked(precondition, new, hour))
        await service.store.revoke_token(precondition, made[-2].record.id, None)
        return Furnished(folder, [one.token.reveal() for one in made], [one.record.id for one in made])


def copied(home: Furnished, folder: Path) -> Furnished:
    shutil.copytree(home.folder, folder)
    return home._replace(folder=folder)


@asynccontextmanager
async def opened(home: Furnished) -> AsyncIterator[Home]:
    """As callers: the root actor, a holder with a token and with a limited one, and one who may do nothing."""

    def ignore(*_: Any) -> None:
        """Nobody is told."""

    metrics = Metrics(Path(tempfile.mkdtemp(dir=home.folder)))
    async with wiring.open_whole(settings_of(home.folder), metrics, ignore, ignore) as services:
        authority = services.authority
        bearers = [await authority.verify(token.encode(), "127.0.0.1") for token in home.tokens[:2]]
        claimed = [Caller(urn, await authority.claim(urn, ""), None, "127.0.0.1", "") for urn in (ADMIN, NO_ACTOR)]
        yield Home(services, [*claimed, *(Caller.with_bearer(one, "127.0.0.1", "") for one in bearers)])


async def answer(
    home: Home,
    schema: GraphQLSchema,
    prepared: PreparedDocument,
    name: str | None,
    sent: dict[str, Any],
    who: int,
    *,
    planned: bool,
    memo: Memo | None = None,
) -> str:
    """What a client would read, word for word."""
    context = Context(home.callers[who], home.services, Meter(ProcessorBudget(), home.callers[who].actor))
    result, _ = await (prepared if planned else by_graphql_core(prepared)).execute(name, sent, context, memo=memo)
    errors = [field_error(error, schema)[0] for error in result.errors or []]
    return orjson.dumps({"data": result.data, "errors": errors}).decode()


class NoFastPath(FastPath):
    """Lets graphql-core execute every operation."""

    def __init__(self) -> None:
        """It has no plans."""

    async def execute(self, *_: Any, **__: Any) -> Fallback:
        return Fallback("disabled")


def by_graphql_core(prepared: PreparedDocument) -> PreparedDocument:
    return replace(prepared, fastpath=NoFastPath())


def without_made(text: str, known: list[str]) -> str:
    """Without what was made at random or told by a clock; what both stores know already stays."""
    return _MADE.sub(lambda match: match[0] if match[0] in known else "0", text)
