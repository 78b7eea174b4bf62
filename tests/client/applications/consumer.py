"""A program that uses both clients. mypy checks it strictly: each result has the type that is asserted here."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import assert_type

from watchword.client import (
    AsyncClient,
    AsyncResults,
    Client,
    NewToken,
    NotFound,
    OperationInfo,
    PolicyInfo,
    ResultPage,
    Results,
    Secret,
    TaskInfo,
    TokenDetails,
    TokenFilter,
    TokenInfo,
)


def synchronous(url: str, actor: str) -> str:
    with Client(url, actor=actor) as watchword:
        new = assert_type(watchword.tokens.create(actor, "consumer", duration=timedelta(days=1)), NewToken)
        assert_type(new.token, Secret[str])
        assert_type(new.metadata.expires_at, datetime | None)
        assert_type(watchword.tokens.get(new.metadata.id), TokenDetails)
        found = assert_type(watchword.tokens.list(TokenFilter("actorUrn", actor)), Results[TokenInfo])
        assert_type(found.pages(), Iterator[Sequence[TokenInfo]])
        assert_type(watchword.tokens.page(page_size=5), ResultPage[TokenInfo])
        assert_type([policy for policy in watchword.policies.list()], list[PolicyInfo])  # noqa: C416 - asserts a row
        assert_type(watchword.operations.task_status("node:1"), TaskInfo | None)
        try:
            for operation in watchword.operations.watch("node:1"):
                assert_type(operation, OperationInfo)
        except NotFound as error:
            assert_type(error.request_id, str | None)
        return watchword.me().username


async def asynchronous(url: str, actor: str) -> str:
    async with AsyncClient(url, actor=actor) as watchword:
        new = assert_type(await watchword.tokens.create(actor, "consumer", duration="1d"), NewToken)
        assert_type(await watchword.tokens.get(new.metadata.id), TokenDetails)
        found = assert_type(watchword.tokens.list(TokenFilter("actorUrn", actor)), AsyncResults[TokenInfo])
        assert_type(found.pages(), AsyncIterator[Sequence[TokenInfo]])
        assert_type([policy async for policy in watchword.policies.list()], list[PolicyInfo])
        assert_type(await watchword.privileges.granted(actor), tuple[str, ...])
        await watchword.tokens.revoke(new.metadata.id)
        return (await watchword.me()).username


if __name__ == "__main__":
    print(synchronous(*sys.argv[1:]), asyncio.run(asynchronous(*sys.argv[1:])))
