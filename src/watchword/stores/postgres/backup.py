"""`db backup` of PostgreSQL: everything of one snapshot, in a file of the same form as the embedded store's.

So a backup of either can be put back into either. FILE is whole or it is not there.
"""

from contextlib import closing
from pathlib import Path

from watchword.domain.backups import Backup
from watchword.domain.store_urls import PostgresUrl
from watchword.stores.postgres.connections import NOW, SNAPSHOT
from watchword.stores.postgres.transfer import PostgresSource
from watchword.stores.postgres.whole import at_work, need_this_version
from watchword.stores.sqlite.backup import drafting, publish, refuse_target
from watchword.stores.sqlite.connections import connect, migrate
from watchword.stores.sqlite.transfer import SqliteTarget
from watchword.stores.transfer import Progress, carry


async def back_up(place: PostgresUrl, file: Path, *, force: bool, progress: Progress) -> Backup:
    def refuse() -> None:
        refuse_target(file, force=force)

    with drafting(file, "backup", refuse) as draft:
        async with at_work(place) as connection:
            await connection.execute(SNAPSHOT)
            await need_this_version(connection, place)
            now: int = await connection.fetchval(NOW)
            with closing(connect(draft, busy_ms=2_000)) as copy:
                migrate(copy)
                await carry(PostgresSource(connection), SqliteTarget(copy), progress)
        return publish(draft, file, now, "The backup", refuse)
