"""`db check`: everything that must be true of the file, asked of the file."""

from collections.abc import Iterator
from pathlib import Path

import apsw

from watchword.domain.actors import ActorStatus
from watchword.domain.operations import State
from watchword.domain.policies import PolicySource, PolicyState, Privilege
from watchword.domain.tokens import TokenType
from watchword.stores import rows
from watchword.stores.migrate import latest
from watchword.stores.sqlite.connections import DIALECT, connect, refuse_foreign, schema_version, store_fault

# Each must find nothing.
_LAWS = {
    "every policy can be read": f"""
        SELECT urn FROM policies
        WHERE state NOT IN ({rows.words(s.value for s in PolicyState)})
           OR source NOT IN ({rows.words(s.value for s in PolicySource)})
           OR (source = 'FILE') <> (set_name IS NOT NULL)
           OR NOT (json_valid(privileges) AND json_valid(users) AND json_valid(groups))
           OR EXISTS (SELECT 1 FROM json_each(iif(json_valid(privileges), privileges, '[]'))
                      WHERE value NOT IN ({rows.words(Privilege.__members__)}))""",  # noqa: S608 - words of our own
    "every token and actor can be read": f"""
        SELECT id FROM tokens WHERE type NOT IN ({rows.words(t.value for t in TokenType)})
        UNION ALL SELECT urn FROM actors WHERE status NOT IN ({rows.words(s.value for s in ActorStatus)})""",  # noqa: S608
    "an id is one token's": "SELECT id FROM tokens GROUP BY id HAVING count(*) > 1",
    "the limits of every token can be read": """
        SELECT id FROM tokens WHERE limits IS NOT NULL AND NOT (
            json_valid(limits) AND json_type(iif(json_valid(limits), limits, '[]')) = 'object')""",
    **rows.LAWS,
    "every live derived token has its parent": f"""
        {rows.ORPHANS} AND (expires_at IS NULL OR expires_at > unixepoch('subsec') * 1000)""",
    "the total of tokens is what counting gives": """
        SELECT 1 WHERE (SELECT count(*) FROM tokens WHERE revoked_at IS NULL)
                    <> ifnull((SELECT total FROM token_totals WHERE kind = 'all' AND urn = ''), 0)""",
    "the totals per actor are what counting gives": """
        SELECT urn FROM (SELECT actor_urn AS urn, count(*) AS n FROM tokens WHERE revoked_at IS NULL GROUP BY actor_urn)
            FULL JOIN (SELECT urn, total FROM token_totals WHERE kind = 'actor') USING (urn)
        WHERE ifnull(n, 0) <> ifnull(total, 0)""",
    "the totals per owner are what counting gives": """
        SELECT urn FROM (SELECT owner_urn AS urn, count(*) AS n FROM tokens WHERE revoked_at IS NULL GROUP BY owner_urn)
            FULL JOIN (SELECT urn, total FROM token_totals WHERE kind = 'owner') USING (urn)
        WHERE ifnull(n, 0) <> ifnull(total, 0)""",
    "the sizes of groups are what counting gives": """
        SELECT urn FROM groups WHERE members <> (SELECT count(*) FROM group_members WHERE group_urn = urn)""",
    "every revocation has its event": """
        SELECT id FROM tokens WHERE revoked_at >= (SELECT events_since FROM state)
            AND id NOT IN (SELECT target FROM events WHERE action = 'token.revoked')""",
    "every event of a revocation has its revoked token": """
        SELECT target FROM events WHERE action = 'token.revoked'
            AND EXISTS (SELECT 1 FROM tokens WHERE id = target AND revoked_at IS NULL)""",
    "every operation is in a known state, and over just when it has an end": f"""
        SELECT number FROM operations
        WHERE state NOT IN ({rows.words(s.value for s in State)})
           OR (finished_at IS NOT NULL) <> (state IN ({rows.words(s.value for s in State if s.is_over)}))
           OR NOT (json_valid(plan) AND json_valid(work))""",  # noqa: S608
    "just one key is in use": """
        SELECT 1 WHERE (SELECT count(*) FROM keys WHERE retired_at IS NULL)
                    <> (SELECT sealed_salt IS NOT NULL FROM state)""",
    "the next key has not signed yet, and waits only where another signs": """
        SELECT kid FROM next_key
        WHERE kid IN (SELECT kid FROM keys) OR (SELECT sealed_salt IS NULL FROM state)""",
}


def check(path: Path, *, older_too: bool = False) -> Iterator[tuple[str, str | None]]:
    """Each law with what is wrong, or None where it holds. With `older_too`, a known older schema is no fault; what
    holds for every version is still asked.
    """
    try:
        refuse_foreign(path)
        connection = connect(path, busy_ms=2_000, read_only=True)
        try:
            yield from laws(connection, older_too=older_too)
        finally:
            connection.close()
    except apsw.Error as error:
        yield "the file can be read", f"{store_fault(error).message} ({error})"


def laws(connection: apsw.Connection, *, older_too: bool = False) -> Iterator[tuple[str, str | None]]:
    version = schema_version(connection)
    current = version == latest(DIALECT)
    behind = None if current or (older_too and version) else f"version {version}; run: watchword db migrate"
    yield f"the schema is version {version if older_too else latest(DIALECT)}", behind
    if behind is None:
        yield from _of_any_version(connection)
    if current:
        yield from _of_this_version(connection)


def _of_any_version(connection: apsw.Connection) -> Iterator[tuple[str, str | None]]:
    problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
    yield "the file is sound", "; ".join(problems) or None
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    yield "every reference has its target", f"{len(broken)} have none" if broken else None


def _of_this_version(connection: apsw.Connection) -> Iterator[tuple[str, str | None]]:
    for law, exceptions in _LAWS.items():
        found = connection.execute(exceptions).fetchall()
        yield law, f"{len(found)} exceptions, the first: {found[0][0]}" if found else None
