"""`python -m watchword` and the `watchword` command: start the command line."""

import os
import sys
import warnings
from importlib.util import find_spec

from watchword.basics.interpreter import load_quickly

EXTRA = (
    "aiosmtplib", "apsw", "asyncpg", "certifi", "click", "cronsim", "cryptography", "granian", "graphql", "h11",
    "joserfc", "orjson", "prometheus_client", "pymysql", "rich", "structlog", "yaml",
)  # fmt: skip
"""Modules of the packages of the extra `server`."""


def main() -> None:
    warnings.filterwarnings("ignore", module="asyncpg")  # our own messages cover its warnings
    load_quickly()
    os.umask(0o077)  # only the owner may read the files we create
    try:
        _need_extra()
        from watchword.cli import cli
        from watchword.cli.run import main as run_command

        run_command(cli)
    except KeyboardInterrupt:  # during the imports
        sys.exit(130)


def _need_extra() -> None:
    """Only the client is installed without the extra. Another package may have brought some of these, so one that is
    there says nothing about the others.
    """
    missing = [name for name in EXTRA if find_spec(name) is None]
    if missing:
        sys.exit(
            "watchword: The command line needs the extra 'server', of which these packages are missing: "
            f"{', '.join(missing)}. In the folder of Watchword's sources, run: pip install '.[server]'"
        )


if __name__ == "__main__":
    main()
