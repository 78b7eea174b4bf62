"""Commands that ask a server: where it is, and as whom. Every word to it goes through `watchword.client`.

Who is calling is never guessed: a token from WATCHWORD_TOKEN or --token-file, or --as; two of them are wrong use.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.domain.errors import OperatorError
from watchword.domain.secret import Secret
from watchword.doors.cli.common import Command
from watchword.doors.cli.outcome import plain_errors
from watchword.doors.cli.streams import WrongUse, read_input
from watchword.loading import left_out
from watchword.settings import load_client

if TYPE_CHECKING:
    from watchword.client import Client, WatchwordError

DEFAULT_URL = "http://127.0.0.1:8080"
LONGEST_TOKEN = 65_536
CONNECTION = ("url", "as_actor", "token_file")

yes_flag = click.option("--yes", is_flag=True, help="Do not ask first.")


def connection_flags(command: Command) -> Command:
    for option in (
        click.option(
            "--token-file", default=None, metavar="FILE", help="File with the caller's token; - is standard input."
        ),
        click.option(
            "--as", "as_actor", default=None, metavar="URN", help="Who is calling; for a server in local mode."
        ),
        click.option(
            "--url", default=None, help=f"Where the server is. [WATCHWORD_URL; default: {DEFAULT_URL}]", metavar="URL"
        ),
    ):
        command = option(command)
    return command


def with_client(command: Command) -> Command:
    """Hand the command a client, made from the connection flags and the environment."""

    @wraps(command)
    def run(*args: Any, url: str | None, as_actor: str | None, token_file: str | None, **flags: Any) -> Any:
        with plain_errors(), connected(url, as_actor, token_file) as client:
            return command(*args, client=client, **flags)

    return connection_flags(run)


def callers(as_actor: str | None, token_file: str | None) -> list[str]:
    """By which of its three ways a caller is named; at most one."""
    sources = {"WATCHWORD_TOKEN": load_client()[1], "--token-file": token_file, "--as": as_actor}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise WrongUse(f"{' and '.join(given)} each say who is calling. Give one of them.")
    return given


def address(url: str | None) -> str:
    return url or load_client()[0] or DEFAULT_URL


@contextmanager
def connected(
    url: str | None, as_actor: str | None, token_file: str | None, *, nameless: bool = False
) -> "Iterator[Client]":
    """A client whose refusals are sentences with a next step. With `nameless` a caller need not be named."""
    if not callers(as_actor, token_file) and not nameless:
        raise WrongUse(
            "Who is calling? Set WATCHWORD_TOKEN, give --token-file FILE, "
            "or on the machine of a server in local mode --as urn:li:corpuser:<name>."
        )
    token = _read_token(token_file) if token_file is not None else load_client()[1]
    url = address(url)
    with plain_refusals(by_name=as_actor is not None):
        from watchword.client import Client
        from watchword.client.connection import is_encrypted, is_loopback

        try:
            client = Client(url, token=token, actor=as_actor)
        except ValueError as error:
            raise WrongUse(str(error)) from None
        if token is not None and not is_encrypted(url) and not is_loopback(url):
            sys.stderr.write(f"watchword: warning: the token goes to {url} unencrypted. Use https.\n")
        with client:
            yield client


@contextmanager
def plain_refusals(*, by_name: bool = False) -> Iterator[None]:
    """Around what the client does."""
    with left_out("httpx._main"):  # a command of its own, which takes as long to load as the rest of it
        from watchword.client import WatchwordError

    try:
        yield
    except WatchwordError as error:
        raise OperatorError(told(error, by_name=by_name)) from error


def told(error: "WatchwordError", *, by_name: bool) -> str:
    """The server's sentence and what to do next."""
    from watchword.client import ServerError, Unauthenticated, Unavailable, Unreachable

    sentence = str(error)
    match error:
        case Unreachable() if "CERTIFICATE_VERIFY_FAILED" in sentence:
            return f"{sentence} If it has a certificate of its own, name its file by SSL_CERT_FILE."
        case Unreachable():
            return f"{sentence} Start it with `watchword serve`, or name another by --url or WATCHWORD_URL."
        case Unauthenticated() if by_name:
            return (
                f"{sentence} --as names a caller to a server in local mode alone, and none that is suspended; "
                "otherwise set WATCHWORD_TOKEN."
            )
        case Unauthenticated():
            return f"{sentence} Make another token: watchword token create --help"
        case Unavailable():
            return f"{sentence} Try again in a moment."
        case ServerError():
            return f"{sentence} Its log has more under the request id {error.request_id}."
    return sentence


def _read_token(file: str) -> Secret[str]:
    """A file that was meant for something else is neither read to its end nor repeated back."""
    content = read_input(LONGEST_TOKEN + 1) if file == "-" else _head(file)
    text = content.decode("utf-8", "replace").strip()
    if not text or len(content) > LONGEST_TOKEN:
        raise WrongUse("--token-file must name a file that holds a token and nothing else.")
    return Secret(text)


def _head(path: str) -> bytes:
    """Opened without waiting, for nobody may ever write to what is not a file."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise WrongUse("--token-file must name a regular file. From anything else, send it to: --token-file -")
        return os.read(opened, LONGEST_TOKEN + 1)
    finally:
        os.close(opened)


def urn_of(prefix: str) -> Callable[[click.Context, click.Parameter, str], str]:
    """For arguments that may be an urn or just what stands at its end."""
    return lambda _context, _parameter, value: value if value.startswith("urn:") else prefix + value


def can_be_asked() -> bool:
    return sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask whoever sits at the terminal; a script has said what it wants."""
    sys.stdout.flush()  # what the question is about comes before it
    if not yes and can_be_asked() and not click.confirm(question, err=True):
        raise OperatorError("Nothing was changed.")
