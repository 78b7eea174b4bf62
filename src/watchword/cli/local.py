"""Commands that work on this machine's store and index: the wiring, which they alone load, when they run."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from watchword.basics.errors import OperatorError
from watchword.basics.extras import missing_extra
from watchword.basics.names import DEFAULT_URL
from watchword.cli.options import STORE_FLAGS, with_settings
from watchword.database.urls import SqliteUrl
from watchword.settings import Settings

if TYPE_CHECKING:
    from watchword.app import wiring as wiring  # noqa: PLC0414 - for the commands
    from watchword.app.services import StoreServices
else:

    class _Wiring:
        def __getattr__(self, name: str) -> Any:
            if missing := missing_extra("server", "This command"):
                raise OperatorError(missing)
            from watchword.app import wiring

            return getattr(wiring, name)

    wiring = _Wiring()

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""
with_store = with_settings(*STORE_FLAGS)


def need_store(settings: Settings) -> None:
    """Fail where there is no store: a mistyped folder must not become a new, empty store."""
    if wiring.has_store(settings):
        return
    store = settings.store_url
    if isinstance(store, SqliteUrl):
        missing = f"There is no store at {store.path.absolute()}."
        fix = "Name the service's folder with --data-dir or WATCHWORD_DATA_DIR."
    else:
        missing = f"There is no store at {store}, schema {settings.database_schema}."
        fix = "Use the service's settings WATCHWORD_DATABASE_URL and WATCHWORD_DATABASE_SCHEMA."
    from watchword.client.profiles import read_environment  # a server does not load the client

    url = read_environment().url or DEFAULT_URL
    if wiring.server_version(url) is None:
        raise OperatorError(f"{missing} {fix} To create a new store there: watchword db migrate")
    # The running service probably has the store that the user means.
    raise OperatorError(f"{missing} The server at {url} uses another store. {fix}")


def run_locally(settings: Settings, action: "Callable[[StoreServices], Awaitable[T]]") -> T:
    """Use the service on an existing store of this version; only `serve` and `db migrate` migrate."""
    import asyncio

    need_store(settings)
    wiring.prepare_store(settings, may_migrate=False)

    async def act() -> T:
        async with wiring.open_local(settings) as service:
            return await action(service)

    return asyncio.run(act())
