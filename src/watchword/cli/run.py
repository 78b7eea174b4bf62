"""Run a command: import it, global flags, standard streams, one line for an error, exit codes 0, 1 and 2.

Imports only what every command needs, so that help and completion stay fast.
"""

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from copy import copy
from importlib import import_module
from inspect import cleandoc
from io import BufferedWriter, FileIO, TextIOWrapper
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NoReturn

import click

from watchword.basics.errors import Fault, OperatorError
from watchword.basics.extras import missing_extra
from watchword.basics.names import DEFAULT_URL
from watchword.cli.output import is_token, one_line, without_tokens

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# What words of other programs mean here. A command works where its group has one of the meanings. Where it has several,
# and of those with a !, which destroy or replace, the error names them.
_HABITS = {
    "get view describe lookup read": "show, status",
    "rename edit set": "update",
    "add new": "create",
    "delete rm remove": "delete, remove, revoke, end, !cancel, !offboard, !truncate",
    "renew refresh": "!rotate",
    "ls": "list",
    "list": "sizes",
    "diff": "!apply --dry-run",
    "task": "operation",
    "series": "index",
    "user": "actor",
    "audit": "event",
}
_FLAG_HABITS = {"--ttl": "--duration", "--expires-in": "--duration", "-A": "--all-actors", "-y": "--yes"}
_FILE_HABITS = {"-f", "--file", "--filename"}
INTERRUPTED, READER_GONE = 130, 141
Lazy = MutableMapping[str, tuple[str, str]]
"""Commands that are not imported yet: the module of each, and the first sentence of its help."""
_EARLIER, _DEBUG = "watchword.earlier", "watchword.debug"
_PASTED = (
    "This is a token, not its id, and the shell may have recorded it. To use the token itself, send it to standard "
    "input: watchword token show - or watchword token revoke -"
)


class GlobalOption(click.Option):
    """A flag that stands before or after the verb. The help of the program describes it, the others only name it."""


def _complete_profiles(*given: Any) -> list[str]:
    from watchword.cli.remote import complete_profiles

    return complete_profiles(*given)


_FORMATS = click.Choice(("table", "json", "yaml", "csv"), case_sensitive=False)
_FILE = click.Path(readable=False)
_PROFILE = "Server and token that `watchword login` stored. [WATCHWORD_PROFILE; default: the current one]"
_GLOBAL: dict[str, dict[str, Any]] = {
    "--url url": {"metavar": "URL", "help": f"The server. [WATCHWORD_URL; default: the profile's, {DEFAULT_URL}]"},
    "--as as_actor": {"metavar": "NAME", "help": "Act as this user, a name or URN, on a server in local mode."},
    "--token-file token_file": {
        "type": _FILE,
        "metavar": "FILE",
        "help": "File with the caller's token; - is standard input.",
    },
    "--profile profile": {"metavar": "NAME", "shell_complete": _complete_profiles, "help": _PROFILE},
    "-o --output output": {"type": _FORMATS, "help": "Output format. [default: table]"},
    "--json as_json": {"is_flag": True, "help": "Short for -o json."},
    "--debug debug": {"is_flag": True, "help": "Print a traceback after an error."},
}


def global_words(name: str) -> tuple[list[str], dict[str, Any]]:
    """How `click.option` is called for a global flag."""
    return next((words.split(), how) for words, how in _GLOBAL.items() if words.endswith(f" {name}"))


def _keep_for_command(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a flag that stands before the verb."""
    if value:
        flag = parameter.opts[-1]
        context.meta.setdefault(_EARLIER, []).append(flag if value is True else f"{flag}={value}")


def _keep_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_DEBUG] = value


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Describe the command's own flags, and name the global ones that it takes."""
    own, shared = [], []
    for parameter in command.get_params(ctx):
        if isinstance(parameter, GlobalOption):
            shared.append(parameter.opts[-1])
        elif (record := parameter.get_help_record(ctx)) is not None:
            own.append(record)
    with formatter.section("Options"):
        formatter.write_dl(own)
    with formatter.section("Global options, see `watchword --help`"):
        formatter.write_text(" ".join(shared))


class Command(click.Command):
    """A command whose errors are one line and which takes no token on the command line. In its help, each example has a
    line of its own.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.help = _help(self.help)
        words, how = global_words("debug")
        self.params.append(GlobalOption(words, **how, expose_value=False, callback=_keep_debug))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [*ctx.meta.pop(_EARLIER, ()), *args]
        if any(parameter.name == "file" and isinstance(parameter, click.Argument) for parameter in self.params):
            args = [word for word in args if word not in _FILE_HABITS]
        with _errors_of(ctx):
            if any(is_token(word.rpartition("=")[2]) for word in args):
                self._reject_token(ctx, args)
            self._reject_both_of_a_pair(args)
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                names = {parameter.name for parameter in self.params}
                if "data_dir" in names and error.option_name in {"--as", "--url", "--token-file"}:
                    raise click.UsageError(f"{error.message} This works on the store and needs no actor.") from None
                raise

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        for parameter in self.params:
            alias = copy(parameter)
            alias.opts = [word for word, ours in _FLAG_HABITS.items() if ours in parameter.opts]
            if alias.opts:
                alias.add_to_parser(parser, ctx)
        return parser

    def _reject_both_of_a_pair(self, args: list[str]) -> None:
        """Such as --enable and --disable, of which click would take the last."""
        for parameter in self.params:
            if not {*parameter.opts}.isdisjoint(args) and not {*parameter.secondary_opts}.isdisjoint(args):
                raise click.UsageError(f"Pass {parameter.opts[0]} or {parameter.secondary_opts[0]}, not both.")

    def _reject_token(self, ctx: click.Context, args: list[str]) -> None:
        """Before values are converted, so that no message repeats the token and it is sent nowhere."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        for parameter in self.params:
            value = given.get(parameter.name or "")
            if any(isinstance(word, str) and is_token(word) for word in _words(value)):
                raise click.BadParameter(_PASTED, ctx, parameter)

    def invoke(self, ctx: click.Context) -> Any:
        with plain_errors():
            return super().invoke(ctx)


def _help(*parts: str | None) -> str:
    """The parts as paragraphs, with a line of its own for each example."""
    text = "\n\n".join(cleandoc(part) for part in parts if part)
    return text.replace("\n\nExample:", "\n\n\b\nExample:")


def _words(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else (value,)


@contextmanager
def _errors_of(context: click.Context) -> Iterator[None]:
    """Give errors of the parser the context of the command: click leaves it out where a flag lacks its value."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or context
        raise


class CommandGroup(click.Group):
    """A group that imports the module of a `lazy` command when that is called, so that commands start fast, and that
    finds a command by another program's word too.
    """

    command_class = Command

    def __init__(self, *args: Any, lazy: Lazy | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        kept: dict[str, Any] = {"expose_value": False, "callback": _keep_for_command}
        self.params += [GlobalOption(words.split(), **how, **kept) for words, how in _GLOBAL.items()]
        self.lazy = lazy or {}
        for name, (_, sentence) in self.lazy.items():
            self.add_command(click.Command(name, help=sentence))  # until the module is imported

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _errors_of(ctx):
            return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            known = next((known.split(", ") for words, known in _HABITS.items() if cmd_name in words.split()), [])
            meant = [word for word in known if word.strip("!").split()[0] in self.commands]
            if len(meant) == 1 and meant[0][0] != "!":
                cmd_name = meant[0]
            elif meant and not ctx.resilient_parsing:
                names = " or ".join(meant).replace("!", "")
                raise click.UsageError(f"No such command {cmd_name!r}. Did you mean {names}?", ctx)
        if cmd_name in self.lazy:
            module, sentence = self.lazy.pop(cmd_name)
            name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
            command: click.Command = getattr(import_module(f"watchword.cli.{module}"), name)
            command.help = _help(sentence, command.help)
            self.commands[cmd_name] = command
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in self._sentences() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.parent is None:
            super().format_options(ctx, formatter)
        else:
            _write_options(self, ctx, formatter)
            self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with its whole sentence, which click would cut at the end of the line."""
        with formatter.section("Commands"):
            formatter.write_dl(self._sentences())

    def _sentences(self) -> list[tuple[str, str]]:
        return [(name, command.get_short_help_str(200)) for name, command in sorted(self.commands.items())]


class WrongUse(click.UsageError):
    """The command was called in a way that makes no sense; the message says how to call it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, click.get_current_context(silent=True))


class OutputError(OSError):
    """Standard output cannot be written; a class of its own to tell it from errors of other files."""


class _StandardOutput(FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror) from None


def main(cli: click.Group) -> NoReturn:
    """The `watchword` process."""
    _open_closed_streams()
    run(cli)


def run(cli: click.Group, words: list[str] | None = None) -> NoReturn:
    """Run one command and exit; errors of click are one line too."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    with plain_errors():
        try:
            code = cli.main(words, prog_name="watchword", standalone_mode=False)
        except click.exceptions.NoArgsIsHelpError as error:
            sys.stderr.write(f"{error.format_message()}\n")
            code = error.exit_code
        except click.ClickException as error:
            code = _print_error(_usage_message(error), error.exit_code)
    raise SystemExit(code if isinstance(code, int) else 0)


def _usage_message(error: click.ClickException) -> str:
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Argument) and error.param_hint is None:
        error.param_hint = f"'{parameter_name(error.param)}'"  # without the brackets of an optional one
    text = error.format_message()
    if isinstance(error, click.BadParameter) and error.param is not None and error.message.startswith("must "):
        text = f"{parameter_name(error.param)} {error.message}"
    sentence = without_tokens(" ".join(text.split()))
    if sentence[-1:] not in ".?!":
        if isinstance(error, WrongUse):  # it ends with the command to run instead
            return sentence
        sentence += "."
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{sentence} {try_help(context)}"


def try_help(context: click.Context | None = None) -> str:
    context = context or click.get_current_context(silent=True)
    return f"Try '{context.command_path if context else 'watchword'} --help' for help."


def parameter_name(parameter: click.Parameter) -> str:
    """`--name`, or `ID` for an argument."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return (parameter.metavar or str(parameter.name).upper()).strip("[].")


class plain_errors:  # noqa: N801 - reads as a word in `with`
    """Turn an error into one line on standard error and exit code 1 (2 for wrong use); a traceback only with --debug.

    Ctrl-C and a closed pipe end the command silently with the exit codes that shells use for them.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            sys.stdout.flush()
        except OSError as unwritten:
            error = unwritten if error is None or isinstance(error, SystemExit) else error
            discard_output()
        if isinstance(error, BrokenPipeError | OutputError):
            discard_output()
        if isinstance(error, BrokenPipeError):
            raise SystemExit(READER_GONE) from None
        if isinstance(error, KeyboardInterrupt | click.Abort):
            raise SystemExit(INTERRUPTED) from None
        if isinstance(error, Exception) and not isinstance(error, click.ClickException | click.exceptions.Exit):
            context = click.get_current_context(silent=True)
            if context is not None and context.meta.get(_DEBUG):
                import traceback

                traceback.print_exception(error)
            raise SystemExit(_print_error(*_message(error))) from None


def _message(error: Exception) -> tuple[str, int]:
    from watchword.client.errors import ProfileChoiceError
    from watchword.settings import SettingsError, StoreUrlError

    if isinstance(error, ProfileChoiceError):
        return _usage_message(WrongUse(str(error))), 2
    if isinstance(error, SettingsError) and not isinstance(error, StoreUrlError):
        text = str(error)
        return f"{text} {try_help()}" if text.startswith("--") else text, 2
    if isinstance(error, Fault):
        return error.message, 1
    if isinstance(error, OperatorError):
        return str(error), 1
    if isinstance(error, OutputError):
        return f"Standard output cannot be written ({error.strerror}). Redirect it to a place with space.", 1
    if isinstance(error, OSError):
        return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ") + _owner_hint(error), 1
    if isinstance(error, ImportError) and (missing := missing_extra("server", "This command")):
        return missing, 1
    return f"Internal error ({type(error).__name__}). For a traceback, pass --debug.", 1


def _owner_hint(error: OSError) -> str:
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return ""
    from pathlib import Path

    from watchword.basics.files import owner_in_the_way

    obstacle = owner_in_the_way(Path(error.filename))
    return "" if obstacle is None else f". {obstacle[0]} belongs to user {obstacle[1]}: run this as that user."


def _print_error(message: str, code: int) -> int:
    sys.stderr.write(f"watchword: {one_line(message)}\n")
    return code


def _open_closed_streams() -> None:
    """Reopen standard streams that the caller closed, so that no file or socket opened later gets their number and
    receives what is printed. Reading or writing them then fails with an ordinary error.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(_open_null(0, os.O_WRONLY), "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(_open_null(1, os.O_RDONLY), "w", closefd=False)
    if sys.stderr is None:  # there is no place left to report a failure
        sys.stderr = os.fdopen(_open_null(2, os.O_WRONLY), "w", closefd=False)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = TextIOWrapper(
            BufferedWriter(_StandardOutput(sys.stdout.fileno(), "w", closefd=False)),
            encoding=sys.stdout.encoding,
            line_buffering=sys.stdout.line_buffering or sys.stdout.write_through,  # the latter by PYTHONUNBUFFERED
        )


def _open_null(number: int, mode: int) -> int:
    found = os.open(os.devnull, mode)
    if found != number:
        os.dup2(found, number)
        os.close(found)
    return number


def read_input(most: int | None = None) -> bytes:
    """Standard input, at most this many bytes."""
    try:
        return sys.stdin.buffer.read(-1 if most is None else most)
    except OSError as error:
        raise WrongUse(f"Standard input cannot be read ({error.strerror}). Is it closed?") from None


def allow_closed_output() -> None:
    """For the service, which runs on when standard output is closed."""
    if fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        discard_output()


def discard_output() -> None:
    """Send what is left in the buffer to /dev/null, so that flushing it at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
