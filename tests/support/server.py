"""A real Watchword server process, started as a user would, and what tests say to it."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil

from tests.support import preloaded
from tests.support.ports import free_port
from tests.support.preloaded import ForkedProcess, without_settings
from tests.support.waiting import SECONDS, is_alive, until, until_gone
from watchword.app.metrics import RENDER_SECONDS
from watchword.index.embedded.process import PROCESS_NAME

ADMIN = "urn:li:corpuser:admin"
GENERATE = "GENERATE_PERSONAL_ACCESS_TOKENS"
MANAGE_ALL = "MANAGE_ACCESS_TOKENS"

CREATE = """mutation ($input: GetAccessTokenInput!) {
  createAccessToken(input: $input) { accessToken metadata { id name actorUrn ownerUrn createdAt expiresAt } } }"""
REVOKE = "mutation ($id: String!) { revokeAccessToken(tokenId: $id) }"
LIST = """query ($input: ListAccessTokensInput) {
  listAccessTokens(input: $input) { start count total tokens { urn id name actorUrn ownerUrn status expiresAt } } }"""
CREATE_POLICY = "mutation ($input: PolicyUpdateInput!) { createPolicy(input: $input) }"
DELETE_POLICY = "mutation ($urn: String!) { deletePolicy(urn: $urn) }"
SET_STATUS = "mutation ($urn: String!, $status: CorpUserStatus!) { updateUserStatus(urn: $urn, status: $status) }"


class GraphQLRefused(AssertionError):
    def __init__(self, answer: Any) -> None:
        super().__init__(str(answer))
        self.errors: list[dict[str, Any]] = answer["errors"]

    @property
    def code(self) -> int:
        code: int = self.errors[0]["extensions"]["code"]
        return code

    @property
    def reason(self) -> str:
        reason: str = self.errors[0]["extensions"]["reason"]
        return reason


class Server:
    """One server on a data folder of its own. Restarting it keeps folder and port."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = folder / "data"
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.out = folder / "stdout.log"
        self.err = folder / "stderr.log"
        self._flags = flags
        self._prefix = prefix
        self._env = without_settings() | dict(env or {})
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.http = plain_client(self.url)

    @property
    def flags(self) -> list[str]:
        return ["--port", str(self.port), "--data-dir", str(self.data_dir), *self._flags]

    @property
    def command(self) -> list[str]:
        return [*self._prefix, sys.executable, "-m", "watchword", "serve", *self.flags]

    def start(self, seconds: float = SECONDS) -> Self:
        """Start it and wait until it has said that it listens."""
        seen = self.out.stat().st_size if self.out.exists() else 0
        process = self.process = self._begin()
        until(
            lambda: b" listens at " in self.out.read_bytes()[seen:] or process.poll() is not None,
            f"{self.url} listens, of which {self.err} may tell more",
            seconds,
        )
        said = self.out.read_bytes()[seen:]
        assert b" listens at " in said, f"the server did not start:\n{self.err.read_text()}"
        return self

    def _begin(self) -> subprocess.Popen[bytes] | ForkedProcess:
        with self.out.open("ab") as out, self.err.open("ab") as err:
            own_command = type(self).command is not Server.command
            if own_command or self._prefix or not preloaded.may_fork(self._env):
                return subprocess.Popen(self.command, stdout=out, stderr=err, env=self._env, start_new_session=True)
            with Path(os.devnull).open("rb") as nothing:
                return preloaded.fork(
                    ["serve", *self.flags],
                    stdin=nothing.fileno(), stdout=out.fileno(), stderr=err.fileno(), env=self._env, new_session=True,
                )  # fmt: skip

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.http.close()

    def stop(self, seconds: float = SECONDS) -> int:
        """Ask it to stop and wait; returns its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self.process = None
        return code

    def kill(self) -> None:
        """`kill -9` for every process of it, at once; when it returns, none of them does anything any more."""
        if self.process is not None:
            others = psutil.Process(self.process.pid).children(recursive=True)
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            # One that is in the middle of a call to the system ends it first, and on a busy machine that takes a while.
            until_gone(others)
            self.process = None
        self.http.close()
        self.http = plain_client(self.url)

    def workers(self) -> list[psutil.Process]:
        assert self.process is not None
        return [p for p in psutil.Process(self.process.pid).children() if is_worker(p)]

    def process_of(self, port: int) -> psutil.Process | None:
        """The one of its processes that holds a connection from this local port."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                if any(one.laddr and one.laddr.port == port for one in process.net_connections("tcp")):
                    return process
        return None

    # What tests say to it.

    def post(
        self,
        query: str,
        variables: Mapping[str, Any] | None = None,
        *,
        actor: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: httpx.Client | None = None,
    ) -> httpx.Response:
        sent = dict(headers or {})
        if actor is not None:
            sent["X-Service-Actor"] = actor
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        return (client or self.http).post(
            f"{self.url}/api/graphql", json={"query": query, "variables": variables or {}}, headers=sent
        )

    def ask(self, query: str, variables: Mapping[str, Any] | None = None, **how: Any) -> Any:
        """The data of an answer without errors; `GraphQLRefused` otherwise."""
        answer = self.post(query, variables, **how).json()
        if "errors" in answer:
            raise GraphQLRefused(answer)
        return answer["data"]

    def create(self, actor: str, *, token: str | None = None, of: str | None = None, **fields: Any) -> Any:
        """A new token: {accessToken, metadata}."""
        wanted = {"type": "PERSONAL", "actorUrn": of or actor, "duration": "ONE_HOUR", "name": "test", **fields}
        who: dict[str, Any] = {"token": token} if token else {"actor": actor}
        return self.ask(CREATE, {"input": wanted}, **who)["createAccessToken"]

    def revoke(self, token_id: str, *, actor: str = ADMIN, **how: Any) -> bool:
        who = how if "token" in how else {"actor": actor, **how}
        revoked: bool = self.ask(REVOKE, {"id": token_id}, **who)["revokeAccessToken"]
        return revoked

    def tokens(self, actor: str = ADMIN, filters: list[dict[str, Any]] | None = None, **fields: Any) -> Any:
        wanted = {"filters": filters or [], **fields}
        return self.ask(LIST, {"input": wanted}, actor=actor)["listAccessTokens"]

    def operate(
        self, action: str, body: Any = None, *, token: str | None, path: str = "/operations", **headers: str
    ) -> httpx.Response:
        """An answer of the operations address."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        return self.http.post(f"{path}?action={action}", json={} if body is None else body, headers=sent)

    def verify(self, token: str, client: httpx.Client | None = None) -> httpx.Response:
        return (client or self.http).get(f"{self.url}/auth", headers={"Authorization": f"Bearer {token}"})

    def asset(self, name: str) -> str:
        """The address of a file of the console."""
        return self._assets + name

    @functools.cached_property
    def _assets(self) -> str:
        page = self.http.get("/").text
        return page[page.index("/assets/") : page.index("mark.svg")]

    def metrics(self) -> str:
        """With everything that was counted before: a worker may answer with what it wrote a second ago."""
        time.sleep(RENDER_SECONDS)
        return self.http.get("/metrics").text

    def samples(self) -> dict[str, float]:
        """The metrics by name and labels."""
        lines = [line.rpartition(" ") for line in self.metrics().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def grant(
        self, *users: str, privileges: tuple[str, ...] = (GENERATE,), scopes: tuple[str, ...] = (), **actors: Any
    ) -> str:
        """A policy for these users; returns its urn."""
        wanted = {
            "type": "PLATFORM",
            "name": "test policy",
            "state": "ACTIVE",
            "privileges": list(privileges),
            "scopes": list(scopes),
            "actors": {"users": list(users), **actors},
        }
        urn: str = self.ask(CREATE_POLICY, {"input": wanted}, actor=ADMIN)["createPolicy"]
        return urn

    def withdraw(self, policy: str) -> None:
        self.ask(DELETE_POLICY, {"urn": policy}, actor=ADMIN)

    def set_status(self, actor: str, status: str) -> None:
        self.ask(SET_STATUS, {"urn": actor, "status": status}, actor=ADMIN)

    def command_line(self, *words: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """A `watchword` command on this server's data folder."""
        return watchword(*words, "--data-dir", str(self.data_dir), **how)


def plain_client(url: str = "", timeout: float = SECONDS) -> httpx.Client:
    """For what is not encrypted: to load all authorities takes longer than many a test."""
    return httpx.Client(base_url=url, timeout=timeout, verify=False)


def watchword(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    clean = without_settings() | dict(env or {})
    if preloaded.may_fork(clean):
        return preloaded.run(words, env=clean, cwd=cwd, stdin=stdin, timeout=SECONDS)
    command = [sys.executable, "-m", "watchword", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=clean, cwd=cwd, input=stdin, check=False
    )


def is_worker(process: psutil.Process) -> bool:
    try:
        other = process.name() == PROCESS_NAME or "resource_tracker" in " ".join(process.cmdline())
        return is_alive(process) and not other
    except psutil.NoSuchProcess:
        return False
