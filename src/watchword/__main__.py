"""`python -m watchword` and the `watchword` command: the command line, joined to the wiring."""

import os
import sys
import warnings
from typing import Any

from watchword.loading import load_quickly


class _Backstage:
    """The wiring, imported by the first command that works on this machine: those that ask a server do without."""

    def __getattr__(self, name: str) -> Any:
        from watchword import maintenance, wiring

        return getattr(maintenance if hasattr(maintenance, name) else wiring, name)


def main() -> None:
    warnings.filterwarnings("ignore", module="asyncpg")  # what it warns of, a sentence of ours says when it matters
    load_quickly()
    os.umask(0o077)  # whatever is made here is for its owner alone
    try:
        from watchword.cli import cli
        from watchword.cli.outcome import run

        run(cli, _Backstage())
    except KeyboardInterrupt:  # while all that is still loading
        sys.exit(130)


if __name__ == "__main__":
    main()
