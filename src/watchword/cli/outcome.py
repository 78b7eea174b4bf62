"""How a command ends: one line for an error, exit codes 0, 1 and 2. Loads nothing that a command may do without."""

import sys
from typing import NoReturn

import click

from watchword.cli.streams import NotWritten, WrongUse, prepare, silence
from watchword.cli.text import one_line, without_tokens
from watchword.domain.errors import Fault, OperatorError

INTERRUPTED, READER_GONE = 130, 141


def run(cli: click.Group, backstage: object) -> NoReturn:
    """The command line as a whole; also what click says of wrong use is one line."""
    prepare()
    with plain_errors():
        try:
            code = cli.main(obj=backstage, prog_name="watchword", standalone_mode=False)
        except click.exceptions.NoArgsIsHelpError as error:
            sys.stderr.write(f"{error.format_message()}\n")
            code = error.exit_code
        except click.ClickException as error:
            code = _say(*_misused(error))
    raise SystemExit(code if isinstance(code, int) else 0)


def _misused(error: click.ClickException) -> tuple[str, int]:
    sentence = without_tokens(" ".join(error.format_message().split()))
    if sentence[-1:] not in ".?!":
        sentence += "."
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{sentence} Try: {context.command_path if context else 'watchword'} --help", error.exit_code


class plain_errors:  # noqa: N801 - reads as a word in `with`
    """An error is one line on standard error and exit code 1 (2 for wrong use), never a traceback but for --debug.

    Ctrl-C and a reader that has gone end the command without a word, with the exit codes that shells know them by.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            sys.stdout.flush()
        except OSError as unwritten:
            error = unwritten if error is None or isinstance(error, SystemExit) else error
            silence()
        if isinstance(error, BrokenPipeError | NotWritten):
            silence()
        if isinstance(error, BrokenPipeError):
            raise SystemExit(READER_GONE) from None
        if isinstance(error, KeyboardInterrupt | click.Abort):
            raise SystemExit(INTERRUPTED) from None
        if isinstance(error, Exception) and not isinstance(error, click.ClickException | click.exceptions.Exit):
            if _debugging():
                import traceback

                traceback.print_exception(error)
            raise SystemExit(_say(*_told(error))) from None


def _told(error: Exception) -> tuple[str, int]:
    from watchword.settings import SettingsError, StoreUrlError

    if isinstance(error, SettingsError | WrongUse) and not isinstance(error, StoreUrlError):
        return str(error), 2
    if isinstance(error, Fault):
        return error.message, 1
    if isinstance(error, OperatorError):
        return str(error), 1
    if isinstance(error, NotWritten):
        return f"Standard output cannot be written ({error.strerror}). Send it to where there is room.", 1
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ") + _whose(error), 1
    return f"Something went wrong here ({type(error).__name__}). See where with: watchword --debug …", 1


def _whose(error: OSError) -> str:
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return ""
    from pathlib import Path

    from watchword.files import owner_in_the_way

    found = owner_in_the_way(Path(error.filename))
    return "" if found is None else f". {found[0]} belongs to user {found[1]}: run this as that user."


def _debugging() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get("debug"))


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"watchword: {one_line(message)}\n")
    return code
