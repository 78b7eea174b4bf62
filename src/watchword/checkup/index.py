"""The search index: whether it answers."""

from collections.abc import Callable, Iterator

from watchword.domain.diagnostics import Diagnostic, bad, ok
from watchword.domain.errors import Fault, OperatorError
from watchword.settings import Settings

ABOUT = "index"


def index(settings: Settings, ask: Callable[[], str]) -> Iterator[Diagnostic]:
    """`ask` tells what the index is, or raises."""
    if settings.index_url is None and not settings.index_path.exists():
        yield ok(ABOUT, f"there is none at {settings.index_path} yet; the first start makes it")
        return
    where = settings.index_url or settings.index_path
    try:
        yield ok(ABOUT, f"{where} answers: {ask()}")
    except OperatorError as error:
        sentence, _, fix = str(error).partition(". ")
        yield bad(ABOUT, sentence.rstrip("."), fix or "Move it away, or name another data folder.")
    except Fault as fault:
        fix = "See that it runs, and that WATCHWORD_INDEX_URL and what goes with it are right. Tokens work without it."
        yield bad(ABOUT, f"{where}: {fault.message.rstrip('.')}", fix)
