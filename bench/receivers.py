"""`python -m bench receivers`: what verification keeps of its rate beside eight hostile receivers of webhooks. Also a
row of `python -m bench attack`.

Each receiver has a webhook, to which test messages are sent one after the other: a delivery would wait longer after
each failure. The process for outgoing requests is not counted as the server's processor time, because it gives way.
"""

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.cases import VERIFY, case
from bench.contenders import ADMIN, WATCHWORD, Contender
from bench.load import Measured, measure, need_programs
from bench.population import populate
from tests.support.receivers import Receiver, endless_header, endless_hints, tiny_chunks

NAME = "eight hostile receivers of webhooks"
LEAST = 0.9
SETTINGS = {"webhook_allowed_networks": "127.0.0.0/8"}
ANSWERS = (endless_hints, endless_header, tiny_chunks)
RECEIVERS = 8
_CREATE = "mutation ($input: CreateWebhookInput!) { createWebhook(input: $input) { webhook { id } } }"
_TEST = "mutation ($id: String!) { testWebhook(id: $id) { error } }"


@contextmanager
def hostile_receivers(server: Contender) -> Iterator[list[Any]]:
    """Yields the attempts that were made, as they come."""
    over, attempts = threading.Event(), list[Any]()

    def attack(id_: str) -> None:
        with httpx.Client(timeout=60, headers={"X-Service-Actor": ADMIN}) as client:
            while not over.is_set():
                asked = {"query": _TEST, "variables": {"id": id_}}
                attempts.append(client.post(f"{server.url}/api/graphql", json=asked).json()["data"]["testWebhook"])

    with ExitStack() as stack:
        ids = []
        for number in range(RECEIVERS):
            receiver = stack.enter_context(Receiver(ANSWERS[number % len(ANSWERS)]))
            wanted = {"name": f"hostile {number}", "url": receiver.url, "enabled": False}
            ids.append(server.ask(_CREATE, {"input": wanted})["createWebhook"]["webhook"]["id"])
        threads = [threading.Thread(target=attack, args=(id_,)) for id_ in ids]
        for thread in threads:
            thread.start()
        try:
            yield attempts
        finally:
            over.set()
            for thread in threads:
                thread.join()
            for id_ in ids:
                server.ask("mutation ($id: String!) { deleteWebhook(id: $id) }", {"id": id_})


def beside_receivers(server: Contender, seconds: int, repeats: int) -> tuple[list[Measured], list[Measured], int]:
    """Verification alone and beside them, in turns, and how many messages were sent."""
    verify, alone, beside, sent = case(VERIFY), list[Measured](), list[Measured](), 0
    for _ in range(repeats):
        alone.append(measure(server, verify, weight=0, seconds=seconds))
        with hostile_receivers(server) as attempts:
            beside.append(measure(server, verify, weight=0, seconds=seconds))
            sent += len(attempts)
    return alone, beside, sent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench receivers", description="Measure /auth beside receivers.")
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=6, help="measurements of each kind, of which the median counts")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when the law is broken")
    asked = parser.parse_args()
    need_programs()
    with tempfile.TemporaryDirectory(prefix="watchword-bench-") as folder:
        population = populate(Path(folder, "data"), 2_000)
        with Contender(WATCHWORD, Path(folder), population, population.size, SETTINGS) as server:
            alone, beside, sent = beside_receivers(server, asked.seconds, asked.repeats)
            used = server.outbound_seconds()
    for first, second in zip(alone, beside, strict=True):
        print(
            f"{first.per_second:>6.0f} -> {second.per_second:>6.0f} a second; 99 % within {first.p99_ms:.0f} -> "
            f"{second.p99_ms:.0f} ms; {first.cpu_us / second.cpu_us:.2f} by the processor"
        )
    rate = median(one.per_second for one in beside) / median(one.per_second for one in alone)
    kept = median(one.cpu_us for one in alone) / median(one.cpu_us for one in beside)
    print(
        f"{rate:.2f} of the rate, {kept:.2f} by the processor of at least {LEAST}; {sent} messages, for which the "
        f"process for outgoing requests used {used:.1f} s"
    )
    if asked.strict and kept < LEAST:
        sys.exit(1)


if __name__ == "__main__":
    main()
