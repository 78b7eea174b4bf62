"""Confirmed reads: what a primary shows counts once its synchronous standbys have confirmed that it still is one.

A primary that was replaced may not know it, and still answers. But a standby that was promoted confirms nothing more to
it. So after a read, on the same connection, a small transaction is committed, which waits for the standbys. If every
standby that may be promoted must confirm, none was promoted before the read began, and no change was made elsewhere.
No clock, lease or timeout is relied on.

The list of standbys must be such that all must confirm. Of `FIRST 1 (a, b)` one confirms, and the other may have been
promoted. Patroni's `synchronous_mode` lists the standbys that it may promote, and requires all; it writes `*` while it
has named no standby, and also when its agent is started again. With `*` any standby confirms, also one that is never
promoted. An empty list confirms nothing. So the list is read before and after each confirmation.
"""

import re
from functools import lru_cache

SETTING = "synchronous_standby_names"
ADVICE = (
    f"Name every standby that may be promoted and require all of them, such as {SETTING} = 'FIRST 2 (a, b)'. Where "
    "Patroni runs the cluster, in its synchronous_mode, set WATCHWORD_DATABASE_FAILOVER=patroni."
)

_LIST = re.compile(r"(?:(?:FIRST|ANY)\s+)?(\d+)\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_NAME = re.compile(r'"(?:[^"]|"")*"|[^\s,]+')


@lru_cache(64)
def objection(names: str) -> str | None:
    """Why a confirmation by these standbys proves nothing; None if it proves something."""
    if not names.strip():
        return f"{SETTING} is empty, so no standby confirms anything"
    match = _LIST.fullmatch(names.strip())
    required, listed = (int(match[1]), match[2]) if match else (1, names)
    standbys = [name.strip('"') for name in _NAME.findall(listed)]
    if "*" in standbys:
        return f"{SETTING} has a *, so a standby that need not confirm may be promoted"
    if required < len(standbys):
        return (
            f"{SETTING} is {names}: only {required} of {len(standbys)} standbys must confirm, and another may be "
            "promoted"
        )
    return None
