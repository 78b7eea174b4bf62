"""Copying a store to the other backend and back preserves all data."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import exports
from tests.support.postgres import Address, home
from tests.support.strategies import ACTORS, GROUPS, kept_policies, record_lists, text
from watchword.admin.backup import copy
from watchword.admin.check import check
from watchword.admin.rules import SealedSecrets
from watchword.authority.policies import Policy
from watchword.basics.names import ACCOUNT_PREFIX
from watchword.database.sqlite.connections import STORE_FILE
from watchword.database.urls import SqliteUrl
from watchword.settings import load
from watchword.tokens.rules import TokenRecord

long_text = st.integers(900, 1_000).flatmap(lambda size: st.text(st.sampled_from("aé'\"\\ẞ😀\u2028"), max_size=size))
events = st.lists(st.tuples(st.sampled_from(ACTORS), text, st.dictionaries(text, text | st.none(), max_size=3)))
policy_lists = st.lists(kept_policies(), max_size=5, unique_by=lambda policy: policy.urn)
members = st.sets(st.tuples(st.sampled_from(ACTORS), st.sampled_from(GROUPS)))


def assert_nothing_sealed(sealed: SealedSecrets) -> None:
    assert sealed.salt is None


def write_store(
    path: Path,
    records: list[TokenRecord],
    granted: list[Policy],
    happened: list[tuple[str, str, dict[str, str | None]]],
    joined: set[tuple[str, str]],
) -> None:
    STORE_FILE.prepare(path)
    with closing(sqlite3.connect(path)) as file, file:
        for r in records:
            values = r._asdict()
            values |= {"type": r.type.value, "limits": r.limits.packed()}
            for name in ("suspended", "actor_name", "owner_name", "owner", "uses", "networks"):
                del values[name]  # not a column
            marks = ", ".join(f":{name}" for name in values)
            file.execute(f"INSERT INTO tokens ({', '.join(values)}) VALUES ({marks})", values)
            if r.revoked_at is not None:
                file.execute(EVENT, (r.revoked_at, r.actor_urn, "token.revoked", r.id, "{}"))
            file.execute(
                ACCOUNT, (ACCOUNT_PREFIX + r.id, r.name, r.description, r.created_at, r.owner_urn, r.revoked_at)
            )
            if r.revoked_at is not None:
                file.execute("INSERT INTO actors (urn, status) VALUES (?, 'SUSPENDED')", (ACCOUNT_PREFIX + r.id,))
            file.execute(RETRY, (r.actor_urn, r.name, "kid", r.id, r.created_at, r.expires_at))
        for p in granted:
            lists = [
                json.dumps(sorted(map(str, words)))
                for words in ([w.name for w in p.privileges], p.users, p.groups, p.scopes)
            ]
            kept = (p.urn, p.name, p.description, p.state.value, p.source.value, p.set_name, int(p.all_users), *lists)
            file.execute(POLICY, kept)
        for actor, target, detail in happened:
            file.execute(EVENT, (1, actor, "policy.updated", target, json.dumps(detail, ensure_ascii=False)))
        imported = [(record.id, record.expires_at) for record in records]
        file.executemany("INSERT INTO imported_tokens (id, expires_at) VALUES (?, ?)", imported)
        for group in GROUPS:
            file.execute("INSERT INTO groups (urn, name) VALUES (?, ?)", (group, group))
        file.executemany("INSERT INTO group_members (actor_urn, group_urn) VALUES (?, ?)", joined)


POLICY = """INSERT INTO policies
(urn, name, description, state, source, set_name, all_users, privileges, users, groups, scopes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
ACCOUNT = """INSERT INTO service_accounts (urn, name, description, created_at, created_by, deleted_at)
VALUES (?, ?, ?, ?, ?, ?)"""
RETRY = "INSERT OR IGNORE INTO retries VALUES (?, ?, ?, ?, ?, ?)"
EVENT = "INSERT INTO events (at, actor, action, target, detail, peer, request_id) VALUES (?, ?, ?, ?, ?, '', '')"


@settings(max_examples=8)
@given(records=record_lists, granted=policy_lists, happened=events, joined=members, long=long_text)
def test_copy_there_and_back_preserves_all_data(
    postgres: Address,
    tmp_path_factory: pytest.TempPathFactory,
    records: list[TokenRecord],
    granted: list[Policy],
    happened: list[tuple[str, str, dict[str, str | None]]],
    joined: set[tuple[str, str]],
    long: str,
) -> None:
    folder = tmp_path_factory.mktemp("transfer")
    there, back = SqliteUrl(folder / "there.db"), SqliteUrl(folder / "back.db")
    write_store(there.path, records, granted, [*happened, (ACTORS[0], long, {})], joined)
    with home(postgres, folder) as database:
        location = load({}, database.env).store_url
        went = asyncio.run(copy(there, location, 1, assert_nothing_sealed, lambda _done, _total: None))
        assert exports.of_home(database) == exports.of_file(there.path)
        assert [problem for _, problem in check(location) if problem is not None] == []
        came = asyncio.run(copy(location, back, 1, assert_nothing_sealed, lambda _done, _total: None))
        assert exports.of_file(back.path) == exports.of_file(there.path)
    assert went == came
    assert [problem for _, problem in check(back) if problem is not None] == []
