"""`python -m watchword` and the `watchword` command: the command line, joined to the wiring."""

import os
from typing import Any

from watchword.doors.cli import cli


class _Backstage:
    """The wiring, imported by the first command that works on this machine: those that ask a server do without."""

    def __getattr__(self, name: str) -> Any:
        from watchword import wiring

        return getattr(wiring, name)


def main() -> None:
    os.umask(0o077)  # whatever is made here is for its owner alone
    cli(obj=_Backstage(), prog_name="watchword")


if __name__ == "__main__":
    main()
