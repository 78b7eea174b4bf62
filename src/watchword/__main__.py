"""`python -m watchword` and the `watchword` command: start the command line."""

import os
import sys
import warnings

from watchword.basics.extras import missing_extra
from watchword.basics.interpreter import load_quickly


def main() -> None:
    warnings.filterwarnings("ignore", module="asyncpg")  # our own messages cover its warnings
    load_quickly()
    os.umask(0o077)  # only the owner may read the files we create
    try:
        if missing := missing_extra("cli", "The command line"):
            sys.exit(f"watchword: {missing}")
        from watchword.cli import cli
        from watchword.cli.run import main as run_command

        run_command(cli)
    except KeyboardInterrupt:  # during the imports
        sys.exit(130)


if __name__ == "__main__":
    main()
