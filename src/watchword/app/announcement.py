"""What a server prints when it is ready."""

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from watchword import __version__
from watchword.basics.names import DEFAULT_URL
from watchword.basics.networks import Endpoint, is_loopback
from watchword.settings import Settings


def announce(settings: Settings, run_folder: Path, notes: Sequence[tuple[str, str]], warning: str) -> None:
    wanted = [settings.endpoint, *([settings.metrics_endpoint] if settings.metrics_endpoint else [])]
    while sum(1 for _ in run_folder.glob("ready-*")) < settings.workers or not all(map(_accepts, wanted)):
        time.sleep(0.005)
    try:
        print(announcement(settings, notes, warning), flush=True)  # noqa: T201 - for the operator
    except BrokenPipeError:  # nothing reads them; the rest of the buffer must not raise at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _accepts(endpoint: Endpoint) -> bool:
    """A worker is ready shortly before it listens; the announcement must wait for both."""
    family, address = endpoint
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(address) == 0


def announcement(settings: Settings, notes: Sequence[tuple[str, str]] = (), warning: str = "") -> str:
    off_because = settings.local_mode_off_because
    local = (
        f"off: {off_because}"
        if off_because
        else f"on: from this machine and user, {settings.actor_headers[0]} names the caller"
    )
    url = settings.listens_at
    lines = [
        f"Watchword {__version__} listens at {settings.listens_at}",
        f"  store       {settings.store_url}",
        f"  index       {settings.index_url or settings.index_path}",
        f"  root actor  {settings.root_actor}",
        f"  local mode  {local}",
        *([f"  console     {settings.issuer}/"] if settings.console and settings.issuer.startswith("http") else []),
        *([f"  commands    export WATCHWORD_URL={url}"] if url.startswith("http") and url != DEFAULT_URL else []),
        *([f"  metrics     http://{settings.metrics_address}/metrics"] if settings.metrics_address else []),
        *([f"  events      {settings.event_stream}"] if settings.event_stream else []),
        *(f"  {word:<12}{note}" for word, note in notes),
    ]
    if warning:
        lines += ["", f"WARNING: {warning}"]
    if not settings.is_loopback and settings.socket_path is None and not settings.tls:
        lines += ["", "WARNING: it can be reached from other machines WITHOUT TLS: tokens travel in the clear."]
        lines += ["         Set WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY, or put a TLS proxy before it."]
    metrics = settings.metrics_address
    if metrics is not None and not is_loopback(metrics.host):
        lines += [
            "",
            f"WARNING: other machines can reach the metrics at {metrics} WITHOUT TLS and without a token.",
            "         Listen on loopback or in a private network, or put a TLS proxy before it.",
        ]
    title = "A first token, made with the settings of this server:" if settings.is_shared else "A first token:"
    lines += ["", title, "", *(f"  {line}" for line in first_example(settings))]
    return "\n".join([*lines, ""])


def first_example(settings: Settings) -> list[str]:
    if not settings.local_mode_on:
        command = f"watchword token create --local --actor {settings.root_actor} --name first"
        # The URL of a shared store may contain a password, so it is not printed.
        return [command if settings.is_shared else f"{command} --data-dir {settings.data_dir}"]
    fields = f'type: PERSONAL, actorUrn: "{settings.root_actor}", duration: ONE_HOUR, name: "first"'
    query = f"mutation {{ createAccessToken(input: {{{fields}}}) {{ accessToken metadata {{ id name }} }} }}"
    return [
        f"curl -s {settings.listens_at}/api/graphql \\",
        f"  -H '{settings.actor_headers[0]}: {settings.root_actor}' -H 'Content-Type: application/json' \\",
        f"  -d '{json.dumps({'query': query})}'",
    ]
