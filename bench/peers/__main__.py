"""`python -m bench peers`: Watchword and other token services, asked in turn for the same work in one run.

Servers and their databases on one core, the load on the other; repeats interleaved, medians printed. Where the work of
a peer is not the same, it is said with the numbers. A peer that cannot be had here is left out, with a sentence.
"""

import argparse
import math
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from bench.contenders import BARE
from bench.load import CONNECTIONS, Measured
from bench.peers import django, keycloak, oidc_provider, pocketbase, watchword
from bench.peers.processes import NotInstalled
from bench.peers.watchword import ON_POSTGRES, ON_SQLITE
from bench.peers.work import CREATE, LIST, REVOKE, ROWS, TOKENS, VERIFY, Contender, measure, prove
from bench.postgres import bench_cluster, used_by
from bench.report import Law, Report, Results, finish, ratio
from bench.rounds import arguments, progress, ready
from tests.support.postgres import Cluster

LEAST = {ON_SQLITE: 4.0, ON_POSTGRES: 2.5}
"""Verification, times that of the fastest peer."""
LEAST_OF_POCKETBASE = {LIST: 6.0, CREATE: 1.5, REVOKE: 1.5}
"""On SQLite. PocketBase neither signs nor waits for the disk."""
POCKETBASE = pocketbase.NAME

ROUNDS, MOST_SECONDS = 3, 15
"""Answers that each connection should get in a measurement, and how long that may take."""

Start = Callable[[Path, Cluster, Callable[[], float]], AbstractContextManager[Contender]]
"""In this folder, with this database to be had, and what its processes have used."""


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    need: Callable[[], str]
    """Installs it, and returns the version."""
    starts: tuple[Start, ...]


def _nothing() -> float:
    return 0.0


def _django(name: str) -> Peer:
    return Peer(
        name,
        django.need,
        (
            lambda folder, _, __: django.start(name, folder, None, _nothing),
            lambda folder, cluster, used: django.start(name, folder, cluster, used),
        ),
    )


PEERS = (
    Peer("oidc-provider", oidc_provider.need, (lambda folder, _, __: oidc_provider.start(folder),)),
    Peer("PocketBase", pocketbase.need, (lambda folder, _, __: pocketbase.start(folder),)),
    Peer("Keycloak", keycloak.need, (keycloak.start,)),
    _django(django.KNOX),
    _django(django.TOOLKIT),
)


@dataclass(slots=True)
class RunNotes:
    """What belongs to the numbers of a run."""

    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    differs: dict[str, dict[str, str]] = field(default_factory=dict)


def main() -> None:
    names = [peer.name for peer in PEERS]
    parser = arguments("peers", __doc__ or "", repeats=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PEER", help=", ".join(names))
    parser.add_argument("--install", action="store_true", help="only install the peers, into .peers")
    asked = parser.parse_args()
    notes = RunNotes()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("It was ended before it was done."))  # and stops whom it started
    peers = [peer for peer in PEERS if peer.name in asked.only and _is_installed(peer, notes)]
    if asked.install:
        print("\n".join(_notes(notes)))
        return
    with ready(asked) as folder:
        folder.chmod(0o755)  # the user that runs the database reaches what is below
        results = run(asked, peers, notes, folder)
    title = f"Other services, {TOKENS:,} valid tokens each"
    finish(Report("peers", title, laws(results), results, ["", *_notes(notes)], asdict(notes)), asked)


def _is_installed(peer: Peer, notes: RunNotes) -> bool:
    progress(f"{peer.name}: installing, unless it is there")
    try:
        notes.versions[peer.name] = peer.need()
    except NotInstalled as why:
        notes.left_out[peer.name] = str(why)
        return False
    return True


def run(asked: argparse.Namespace, peers: Sequence[Peer], notes: RunNotes, folder: Path) -> Results:
    """Every contender runs for the whole run; each repeat measures each in turn."""
    results = Results()
    with ExitStack() as stack:
        cluster = stack.enter_context(bench_cluster(folder))
        used = partial(used_by, cluster)
        (folder / BARE).mkdir()
        contenders = [
            stack.enter_context(watchword.start_bare(folder / BARE)),
            stack.enter_context(watchword.start(folder / "sqlite", None, _nothing)),
            stack.enter_context(watchword.start(folder / "postgres", cluster, used)),
        ]
        contenders += _started(stack, [(one, start) for one in peers for start in one.starts], notes, folder, cluster)
        notes.differs = {one.name: dict(one.differs) for one in contenders if one.differs}
        seconds: dict[tuple[str, str], int] = {}
        for repeat in range(asked.repeats):
            for row in asked.rows:
                for contender in (one for one in contenders if row in one.works):
                    if repeat == 0:
                        seconds[row, contender.name] = _warm(contender, row, asked)
                    measured = measure(contender, row, seconds[row, contender.name])
                    results.add((row, contender.name, contender.tokens), measured)
                    progress(f"{row}, {contender.name}: {measured.per_second:,.0f} a second")
    return results


def _started(
    stack: ExitStack, wanted: Sequence[tuple[Peer, Start]], notes: RunNotes, folder: Path, cluster: Cluster
) -> list[Contender]:
    """All at once, because each waits for others most of the time until it is filled."""

    def enter(number: int, peer: Peer, start: Start) -> Contender | None:
        own = folder / f"peer-{number}"
        own.mkdir()
        try:
            contender = stack.enter_context(start(own, cluster, partial(used_by, cluster)))
        except NotInstalled as why:
            notes.left_out[peer.name] = str(why)
            return None
        progress(f"{contender.name} is there, with {contender.tokens:,} tokens")
        return contender

    with ThreadPoolExecutor(max(1, len(wanted))) as pool:
        entered = [pool.submit(enter, number, peer, start) for number, (peer, start) in enumerate(wanted)]
    return [found for one in entered if (found := one.result()) is not None]


def _warm(contender: Contender, row: str, asked: argparse.Namespace) -> int:
    """With a look at one answer first. Returns the seconds of a measurement: more where every connection would hardly
    get an answer. Requests that can be sent once are too few to be spent on warming up.
    """
    slow = math.ceil(prove(contender, row) * CONNECTIONS * ROUNDS)
    if asked.warm and not contender.works[row].once:
        measure(contender, row, max(asked.warm, min(slow, MOST_SECONDS)))
    return max(int(asked.seconds), min(slow, MOST_SECONDS))


def laws(results: Results) -> list[Law]:
    """Compare with the fastest peer in each repeat; for verification that has a target. The other rows have one
    against PocketBase.
    """
    notes = [
        ratio(results, f"{row}, {ON_SQLITE} ÷ {POCKETBASE}", (row, ON_SQLITE, TOKENS), key, least=least)
        for row, least in LEAST_OF_POCKETBASE.items()
        for key in results.runs
        if key[:2] == (row, POCKETBASE)
    ]
    for row in ROWS:
        peers = [runs for (of, name, _), runs in results.runs.items() if of == row and name not in (*LEAST, BARE)]
        if not peers:
            continue
        fastest = [max(repeat, key=_rate) for repeat in zip(*peers, strict=True)]
        for name, least in LEAST.items():
            ours = results.runs[row, name, TOKENS]
            each = [a.per_second / b.per_second for a, b in zip(ours, fastest, strict=True)]
            cpu = [b.cpu_us / a.cpu_us for a, b in zip(ours, fastest, strict=True) if a.cpu_us and b.cpu_us]
            notes.append(Law(f"{row}, {name} ÷ the fastest peer", each, cpu, least if row == VERIFY else None))
    return notes


def _rate(measured: Measured) -> float:
    return measured.per_second


def _notes(notes: RunNotes) -> list[str]:
    differs = [
        f"  {name}{f', {row}' if row else ''}: {words}"
        for name, of in notes.differs.items()
        for row, words in of.items()
    ]
    parts = {
        "Where the work differs": differs,
        "Installed": [f"  {name}: {version}" for name, version in notes.versions.items()],
        "Left out": [f"  {name}: {why}" for name, why in notes.left_out.items()],
    }
    return [line for title, lines in parts.items() if lines for line in (f"{title}:", *lines)]


if __name__ == "__main__":
    main()
