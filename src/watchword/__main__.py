"""`python -m watchword` and the `watchword` command: the command line, joined to the wiring."""

from watchword import wiring
from watchword.doors.cli import cli


def main() -> None:
    cli(obj=wiring, prog_name="watchword")


if __name__ == "__main__":
    main()
