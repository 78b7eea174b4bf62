"""`python -m watchword` and the `watchword` command: the command line, joined to the wiring."""

import os
import sys
import warnings
from typing import Any

from watchword.interpreter import load_quickly


class LazyWiring:
    """Imports the wiring for the first command that needs it: commands that call a server do not."""

    def __getattr__(self, name: str) -> Any:
        from watchword import wiring

        return getattr(wiring, name)


def main() -> None:
    warnings.filterwarnings("ignore", module="asyncpg")  # our own messages cover its warnings
    load_quickly()
    os.umask(0o077)  # only the owner may read the files we create
    try:
        from watchword.cli import cli
        from watchword.cli.run import main as run_command

        run_command(cli, LazyWiring())
    except KeyboardInterrupt:  # during the imports
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("watchword: The command line needs more packages. Run: pip install 'watchword[server]'")


if __name__ == "__main__":
    main()
