"""`python -m watchword` and the `watchword` command: the command line, joined to the wiring."""

import os

from watchword import wiring
from watchword.doors.cli import cli


def main() -> None:
    os.umask(0o077)  # whatever is made here is for its owner alone
    cli(obj=wiring, prog_name="watchword")


if __name__ == "__main__":
    main()
