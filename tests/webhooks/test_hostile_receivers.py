"""What receivers answer is read by a process of its own, within bounds on the whole answer."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import psutil
import pytest

from tests.support.receivers import (
    Answer,
    Handler,
    Receiver,
    endless_header,
    endless_hints,
    hang,
    status,
    tiny_chunks,
)
from tests.support.server import ADMIN, Server
from tests.support.waiting import until, until_gone
from tests.webhooks.test_webhooks import TEST, create, deliveries

SECRET = "in the environment of the server alone"
HOSTILE = {
    "hints": (endless_hints, "The answer came in more than 500 pieces."),
    "header": (endless_header, "The answer has more than 32 kB of headers."),
    "chunks": (tiny_chunks, "The answer came in more than 500 pieces."),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {"WATCHWORD_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8", "WATCHWORD_OIDC_CLIENT_SECRET": SECRET}
    with Server(tmp_path_factory.mktemp("hostile"), env=env) as started:
        yield started


class Sender:
    """Notes which process holds the other end, and then answers."""

    def __init__(self, server: Server, answer: Answer) -> None:
        self._server = server
        self._answer = answer
        self.processes: list[psutil.Process] = []

    def __call__(self, handler: Handler) -> None:
        process = self._server.process_of(handler.client_address[1])
        if process is not None:
            self.processes.append(process)
        self._answer(handler)


def test_hostile_answers_are_cut_off_in_another_process_and_other_webhooks_go_on(server: Server) -> None:
    with ExitStack() as stack:
        senders = {name: Sender(server, answer) for name, (answer, _) in HOSTILE.items()}
        for name, sender in senders.items():
            create(server, name, stack.enter_context(Receiver(sender)).url, actions=["group.created"])
        well = stack.enter_context(Receiver())
        create(server, "well", well.url, actions=["group.created"])
        server.ask('mutation { createGroup(input: {id: "hostile", name: "x"}) }', {}, actor=ADMIN)
        well.first("group.created")
        for name, (_, reason) in HOSTILE.items():
            until(partial(is_tried, server, name), f"{name} is tried")
            first = attempts(server, name)[0]
            assert not first["succeeded"]
            assert first["error"] == reason
            workers = {worker.pid for worker in server.workers()}
            (process, *_) = senders[name].processes
            assert process.pid not in workers
            assert process.ppid() in workers
            assert process.nice() > 0
            assert SECRET not in str(process.environ())
        for name in HOSTILE:
            server.ask("mutation ($id: String!) { deleteWebhook(id: $id) }", {"id": name}, actor=ADMIN)


def is_tried(server: Server, name: str) -> bool:
    return bool(attempts(server, name))


def attempts(server: Server, name: str) -> list[Any]:
    return [attempt for one in deliveries(server, name) for attempt in one["attempts"]]


def test_killed_process_fails_what_it_sends_and_is_started_again(server: Server) -> None:
    sender = Sender(server, hang)
    with Receiver(sender) as receiver, ThreadPoolExecutor(1) as pool:
        create(server, "killed", receiver.url, actions=["policy.created"])
        asked = pool.submit(server.ask, TEST, {"id": "killed"}, actor=ADMIN)
        until(lambda: bool(sender.processes), "it is sent")
        sender.processes[0].kill()
        assert asked.result()["testWebhook"]["error"] == (
            "The process for outgoing requests ended with the exit status -9."
        )
        receiver.answer = status(200)
        assert server.ask(TEST, {"id": "killed"}, actor=ADMIN)["testWebhook"]["succeeded"]


def test_process_ends_with_its_worker(make_server: Callable[..., Server]) -> None:
    server = make_server(env={"WATCHWORD_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"})
    sender = Sender(server, hang)
    with Receiver(sender) as receiver, ThreadPoolExecutor(1) as pool:
        create(server, "orphan", receiver.url, actions=["policy.created"])
        asked = pool.submit(server.post, TEST, {"id": "orphan"}, actor=ADMIN)
        until(lambda: bool(sender.processes), "it is sent")
        (process,) = sender.processes
        psutil.Process(process.ppid()).kill()
        until_gone([process])
        assert asked.exception() is not None
