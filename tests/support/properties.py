"""The seed of the property tests: a new one for each run, or the one that is given with `--hypothesis-seed`."""

import secrets
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

SEED = "watchword_seed"
_KEY = pytest.StashKey[int]()
_chosen: list[int] = []


def choose_seed(config: pytest.Config) -> None:
    """The given one; in a worker, that of the run; otherwise a new one."""
    given = config.getoption("hypothesis_seed")
    worker = getattr(config, "workerinput", {})
    chosen = int(given) if given is not None else worker.get(SEED, secrets.randbits(32))
    config.stash[_KEY] = chosen
    _chosen[:] = [chosen]


def seed_of(config: pytest.Config) -> int:
    return config.stash[_KEY]


def seed_item(item: pytest.Item) -> None:
    function = getattr(item, "obj", None)
    if getattr(function, "is_hypothesis_test", False):
        _give(getattr(function, "__func__", function))


def run_machine(machine: type[RuleBasedStateMachine], **how: Any) -> None:
    """Run a state machine with the run's seed and these settings."""
    _give(machine)
    run_state_machine_as_test(machine, settings=settings(**how))


def _give(test: Any) -> None:
    """As `hypothesis.seed` does, which would also stop keeping what failed."""
    test._hypothesis_internal_use_seed = _chosen[0]
