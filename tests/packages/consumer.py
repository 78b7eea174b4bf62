"""A program that uses the client: run where nothing else is installed, and checked strictly."""

import asyncio
import sys

from watchword.client import AsyncClient, Client, Secret, Unauthenticated
from watchword.client.middleware import VerifyTokens


def issue(client: Client) -> Secret[str]:
    return client.tokens.create("urn:li:corpuser:consumer", "nightly", duration="ONE_DAY").token


async def whoami(url: str, token: Secret[str]) -> str:
    async with AsyncClient(url, token=token) as client:
        return (await client.me()).urn


def main(url: str, actor: str) -> None:
    with Client(url, actor=actor) as client:
        print(client.me().urn, client.server_info().version)
        print(asyncio.run(whoami(url, issue(client))))
    try:
        asyncio.run(whoami(url, Secret("wrong")))
    except Unauthenticated as error:
        print(error.code, VerifyTokens.__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
