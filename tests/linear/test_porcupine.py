"""Porcupine, an independent checker with its own model, gives the same verdicts on the same histories."""

import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.linear.checker import unexplained
from tests.linear.history import OK, UNKNOWN, Call, History, Kind, Outcome, Verdict, refused
from tests.linear.load import Load
from tests.linear.servers import QUIET, StaleServer
from tests.linear.test_checker import EXPLAINED, VIOLATIONS, model_run
from tests.support.pages import ROOT
from tests.support.server import Server
from tests.support.system import need_program

PROGRAM = ROOT / "tests/linear/porcupine"


@pytest.fixture(scope="module")
def porcupine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("porcupine") / "porcupine"
    command = [need_program("go", "golang-go"), "build", "-mod=readonly", "-o", str(built), "."]
    done = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


def agreed(porcupine: Path, history: History, folder: Path) -> Counter[str]:
    """Check each actor with both; return how often they gave which verdict."""
    file = folder / "history.jsonl"
    history.write(file)
    done = subprocess.run([porcupine, str(file)], capture_output=True, text=True, check=True)
    theirs = dict(line.split() for line in done.stdout.splitlines())
    ours = {a: "Ok" if unexplained(calls) is None else "Illegal" for a, calls in history.by_actor().items()}
    assert theirs == ours
    return Counter(ours.values())


@pytest.mark.soak
def test_both_checkers_agree_on_hand_written_histories(porcupine: Path, tmp_path: Path) -> None:
    by_hand = {**VIOLATIONS, **EXPLAINED}
    history = History(replace(c, actor=f"a{n}") for n, calls in enumerate(by_hand.values()) for c in calls)
    assert agreed(porcupine, history, tmp_path) == {"Illegal": len(VIOLATIONS), "Ok": len(EXPLAINED)}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_both_checkers_agree_on_altered_model_runs(porcupine: Path, tmp_path: Path, seed: int) -> None:
    verdicts = agreed(porcupine, model_run(seed, 4_000, 80, 8, altered), tmp_path)
    assert min(verdicts["Ok"], verdicts["Illegal"]) > 5, verdicts


def altered(chance: random.Random, made: Call) -> Call:
    """Some answers are lost or changed."""
    drawn = chance.random()
    if made.kind.writes and made.outcome is OK and drawn < 0.02:
        return replace(made, outcome=UNKNOWN)
    if made.kind is Kind.VERIFY and drawn < 0.03:
        return replace(made, outcome=chance.choice([OK, refused("token_revoked"), refused("invalid_token")]))
    if made.kind is Kind.PRIVILEGES and made.outcome.granted is not None and drawn < 0.1:
        return replace(made, outcome=Outcome(Verdict.OK, granted=not made.outcome.granted))
    return made


@pytest.mark.soak
def test_both_checkers_agree_on_a_load_on_three_workers(
    porcupine: Path, tmp_path: Path, make_server: Callable[..., Server]
) -> None:
    history = Load([make_server("--workers", "3", env=QUIET)]).run(20).history
    assert agreed(porcupine, history, tmp_path).keys() == {"Ok"}


@pytest.mark.soak
def test_both_checkers_detect_a_cached_verdict(porcupine: Path, tmp_path: Path) -> None:
    with StaleServer(tmp_path, "--workers", "3", env=QUIET) as server:
        history = Load([server]).run(5).history
    assert agreed(porcupine, history, tmp_path)["Illegal"] > 0


def test_porcupine_lock_has_hashes_and_no_urls() -> None:
    lines = (PROGRAM / "go.sum").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w./-]+ v[\d.]+(/go\.mod)? h1:[\w+/]{43}=", line)] == []
