"""The modules of the packages that each extra of the distribution brings, and what to install when some are missing."""

from importlib.util import find_spec

EXTRAS = {
    "cli": ("click", "cronsim", "rich", "yaml"),
    "server": (
        "aiosmtplib", "apsw", "asyncpg", "certifi", "click", "cronsim", "cryptography", "granian", "graphql", "h11",
        "joserfc", "orjson", "prometheus_client", "pymysql", "rich", "structlog", "yaml",
    ),
}  # fmt: skip
"""By name: reading the metadata at each start takes longer."""


def missing_extra(extra: str, what: str) -> str | None:
    """What to do if packages of the extra are missing. Another package may have brought some of them, so one that is
    there says nothing about the others.
    """
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if not missing:
        return None
    return (
        f"{what} needs the extra '{extra}', of which these packages are missing: {', '.join(missing)}. "
        f"In the folder of Watchword's sources, run: pip install '.[{extra}]'"
    )
