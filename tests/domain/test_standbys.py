"""Which lists of synchronous standbys make a confirmation worth something."""

import pytest

from watchword.database.urls import objection_to_standbys

ALL_MUST_CONFIRM = ["a", '"a b"', "1 (a)", "FIRST 2 (a, b)", "any 2(a,b)", '2 ("a,b", c)', "FIRST 3 (a, b)"]
SOME_MUST_CONFIRM = ["a, b", "FIRST 1 (a, b)", "ANY 1 (a, b)", "2 (a, b, c)", '"a, b", c']
NOBODY_IS_NAMED = ["", " ", "*", '"*"', "FIRST 1 (*)", "2 (a, *)"]


@pytest.mark.parametrize("names", ALL_MUST_CONFIRM)
def test_list_of_which_all_must_confirm_is_accepted(names: str) -> None:
    assert objection_to_standbys(names) is None


@pytest.mark.parametrize("names", SOME_MUST_CONFIRM)
def test_list_of_which_some_must_confirm_is_not_accepted(names: str) -> None:
    told = objection_to_standbys(names)
    assert told is not None
    assert "standbys must confirm, and another may be promoted" in told


@pytest.mark.parametrize("names", NOBODY_IS_NAMED)
def test_list_that_names_nobody_is_not_accepted(names: str) -> None:
    told = objection_to_standbys(names)
    assert told is not None
    assert told.startswith("synchronous_standby_names ")
