"""Scopes and their wildcards, against a reference that compares them part by part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import ACTORS, GROUPS, SCOPES, policies
from watchword.access.explanations import grants_of
from watchword.authority.policies import Policy
from watchword.authority.policy_set import PolicySet
from watchword.basics.errors import Fault
from watchword.basics.scopes import check_scope, common, covering, is_scope, united

scopes = st.sampled_from(SCOPES)
sets = st.frozensets(scopes, max_size=4)


def reference(held: frozenset[str], word: str) -> bool:
    return any(
        one in ("*", word) or (one.endswith(":*") and word.startswith(one[:-1]) and word != one[:-2]) for one in held
    )


@given(sets, scopes)
def test_wildcard_covers_all_scopes_below_it(held: frozenset[str], word: str) -> None:
    assert (covering(held, word) is not None) is reference(held, word)


@given(sets, sets, scopes)
def test_union_and_intersection_cover_what_either_and_both_cover(
    one: frozenset[str], other: frozenset[str], word: str
) -> None:
    assert reference(united(one, other), word) is (reference(one, word) or reference(other, word))
    assert reference(common(one, other), word) is (reference(one, word) and reference(other, word))


@given(sets, sets)
def test_union_has_no_scope_that_another_covers(one: frozenset[str], other: frozenset[str]) -> None:
    words = united(one, other)
    assert not any(reference(words - {word}, word) for word in words)


@given(st.lists(policies(), max_size=6), st.sampled_from(ACTORS), st.sets(st.sampled_from(GROUPS)), scopes)
def test_actor_holds_the_scopes_of_the_policies_that_name_it(
    held: list[Policy], actor: str, groups: set[str], word: str
) -> None:
    named = [
        policy.scopes
        for policy in held
        if policy.state.value == "ACTIVE" and (policy.all_users or actor in policy.users or groups & policy.groups)
    ]
    holds = any(reference(one, word) for one in named)
    known = PolicySet(1, tuple(held))
    assert known.holds(actor, groups, word) is holds
    assert reference(known.scopes(actor, groups), word) is holds
    assert bool(grants_of(held, actor, groups, word)) is holds


@pytest.mark.parametrize("word", ["a", "a:b", "a.b-c_d:0:*", "*", "x" * 100])
def test_scope_form_is_accepted(word: str) -> None:
    assert check_scope(word, "scopes") == word


@pytest.mark.parametrize("word", ["", ":", "a:", ":a", "a::b", "A", "a b", "*:a", "a:*:b", "a*", "**", "é", "x" * 101])
def test_other_words_are_rejected(word: str) -> None:
    assert not is_scope(word)
    with pytest.raises(Fault, match="scopes must be a scope such as reports:read"):
        check_scope(word, "scopes")
