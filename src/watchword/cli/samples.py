"""Sample series: the same row for the same aspect and moment, whenever they are made.

Rows stand on a grid of moments that reaches back ninety days from now. Made again later, the grid is the same and only
its end has moved on.
"""

import json
import random
from collections.abc import Iterator

from watchword.domain.indices import TIME, Aspect, Row

WINDOW = 90 * 86_400_000
_THINGS = ("orders", "payments", "customers", "stock", "visits", "refunds", "prices", "shipments")
_PEOPLE = ("alice", "bob", "carol", "dave", "erin", "frank", "grace")
_OPERATIONS = ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER")


def sample_rows(aspect: Aspect, rows: int, now: int) -> Iterator[Row]:
    step = WINDOW // rows
    last = now // step
    for tick in range(last - rows + 1, last + 1):
        at = tick * step
        chance = random.Random(f"{aspect}@{at}")  # noqa: S311 - to look alive, not to keep a secret
        content = {TIME: at, "@timestamp": at, "urn": _urn(aspect, chance), **_members(aspect, at, chance)}
        yield Row(json.dumps(content, separators=(",", ":")).encode(), f"demo-{at}")


def _urn(aspect: Aspect, chance: random.Random) -> str:
    thing = f"{chance.choice(_THINGS)}_{chance.randrange(1, 13):02}"
    if aspect.entity.lower() == "dataset":
        return f"urn:li:dataset:(urn:li:dataPlatform:hive,demo.{thing},PROD)"
    return f"urn:li:{aspect.entity}:(demo,{thing})"


def _members(aspect: Aspect, at: int, chance: random.Random) -> dict[str, object]:
    who = f"urn:li:corpuser:{chance.choice(_PEOPLE)}"
    if aspect.name.lower() == "operation":
        return {
            "actor": who,
            "operationType": chance.choice(_OPERATIONS),
            "numAffectedRows": chance.randrange(1, 100_000),
            "lastUpdatedTimestamp": at - chance.randrange(60_000),
        }
    return {
        "eventGranularity": '{"unit":"DAY","multiple":1}',
        "uniqueUserCount": chance.randrange(1, len(_PEOPLE) + 1),
        "totalSqlQueries" if aspect.entity.lower() in ("dataset", "query") else "viewsCount": chance.randrange(1, 500),
        "topUser": who,
    }
