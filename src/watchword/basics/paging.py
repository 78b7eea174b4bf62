"""Pages of lists, and how long a search may take."""

from watchword.basics.errors import invalid

DEFAULT_COUNT = 20
MAX_COUNT = 1_000
MAX_SHOWN = 50_000  # rows times fields, in all lists of one request
SEARCH_SECONDS = 5.0
LARGEST = 2**63 - 1


def check_page(start: int | None, count: int | None) -> dict[str, int]:
    start = start or 0
    if not 0 <= start <= LARGEST:
        raise invalid("start", "start must be 0 or more.")
    return {"start": start, "count": check_page_size(count, least=0)}


def check_page_size(count: int | None, least: int = 1) -> int:
    count = DEFAULT_COUNT if count is None else count
    if not least <= count <= MAX_COUNT:
        raise invalid("count", f"count must be from {least} to {MAX_COUNT:,}.")
    return count


def check_shown(values: int) -> None:
    """Check rows times fields of all lists of a request."""
    if values > MAX_SHOWN:
        raise invalid(
            "count",
            f"The lists of one request may return at most {MAX_SHOWN:,} values (rows times fields). Request fewer.",
        )
