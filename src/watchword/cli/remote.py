"""Commands that ask a server: where it is, and as whom. Every word to it goes through `watchword.client`.

Who is calling is never guessed: a token from WATCHWORD_TOKEN or --token-file, or --as, or --profile; two of them are
wrong use. Only where none of them is given, the profile that `watchword login` kept for the server is meant.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.common import Command
from watchword.cli.outcome import plain_errors
from watchword.cli.profiles import Profile, Profiles, same
from watchword.cli.streams import WrongUse, read_input
from watchword.cli.words import in_our_words
from watchword.domain.errors import OperatorError
from watchword.domain.secret import Secret
from watchword.loading import left_out
from watchword.settings import DEFAULT_URL, load_client

if TYPE_CHECKING:
    from watchword.client import Client, WatchwordError

LONGEST_TOKEN = 65_536
CONNECTION = ("url", "as_actor", "token_file", "profile")
LAST_DAYS, LAST_PART = 3 * 86_400, 0.8
"""When a token is near its end: less than so many seconds, and no more than the last part of its life, are left."""

yes_flag = click.option("--yes", is_flag=True, help="Do not ask first.")
url_flag = click.option(
    "--url", default=None, help=f"Where the server is. [WATCHWORD_URL; default: the profile's, {DEFAULT_URL}]",
    metavar="URL",
)  # fmt: skip


def complete_profiles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in Profiles(load_client().folder).names if name.startswith(incomplete)]
    except (OperatorError, OSError):  # to be told when a command is run, not while it is typed
        return []


def complete_files(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[click.shell_completion.CompletionItem]":
    """By the shell itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def connection_flags(command: Command) -> Command:
    for option in (
        click.option(
            "--profile",
            default=None,
            metavar="NAME",
            help="Server and token that `watchword login` kept. [WATCHWORD_PROFILE; default: the current one]",
            shell_complete=complete_profiles,
        ),
        click.option(
            "--token-file",
            default=None,
            metavar="FILE",
            help="File with the caller's token; - is standard input.",
            shell_complete=complete_files,
        ),
        click.option(
            "--as", "as_actor", default=None, metavar="URN", help="Who is calling; for a server in local mode."
        ),
        url_flag,
    ):
        command = option(command)
    return command


def with_client(command: Command) -> Command:
    """Hand the command a client, made from the connection flags and the environment."""

    @wraps(command)
    def run(*args: Any, **flags: Any) -> Any:
        connection = {flag: flags.pop(flag) for flag in CONNECTION}
        with plain_errors(), connected(**connection) as client:
            return command(*args, client=client, **flags)

    return connection_flags(run)


def callers(as_actor: str | None, token_file: str | None, profile: str | None) -> list[str]:
    """By which of its ways a caller is named outright; at most one."""
    sources = {
        "WATCHWORD_TOKEN": load_client().token,
        "--token-file": token_file,
        "--as": as_actor,
        "--profile": profile,
    }
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise WrongUse(f"{' and '.join(given)} each say who is calling. Give one of them.")
    return given


@dataclass(frozen=True, slots=True)
class Chosen:
    """Where the server is, and by what it is asked: a profile, or neither where the caller was named otherwise."""

    url: str
    profile: Profile | None = None

    @property
    def token(self) -> Secret[str] | None:
        return None if self.profile is None else Profiles(load_client().folder).token(self.profile)


def choose(url: str | None, as_actor: str | None, token_file: str | None, profile: str | None) -> Chosen:
    """The server: --url or --profile, WATCHWORD_URL, the profile that is meant where none is named, the default. A
    token of a profile goes to the server of that profile alone.
    """
    given = callers(as_actor, token_file, profile)
    set_here = load_client()
    profiles = Profiles(set_here.folder)
    if profile is not None:
        named = profiles.get(profile)
        if url is not None and not same(url, named.url):
            raise WrongUse(f"--url and --profile name two servers: profile {profile} is for {named.url}. Give one.")
        return Chosen(named.url, named)
    where = url or set_here.url
    if where is not None and given:
        return Chosen(where)
    name = set_here.profile or profiles.current
    if where is None and name is not None:
        meant = profiles.get(name)
        return Chosen(meant.url, None if given else meant)
    where = where or DEFAULT_URL
    return Chosen(where, None if given else _profile_at(where, set_here.profile, profiles))


def is_named(url: str | None, as_actor: str | None, token_file: str | None, profile: str | None) -> bool:
    """Whether anybody is calling."""
    return (
        bool(callers(as_actor, token_file, profile)) or choose(url, as_actor, token_file, profile).profile is not None
    )


def _profile_at(url: str, name: str | None, profiles: Profiles) -> Profile | None:
    if name is not None and same((named := profiles.get(name)).url, url):
        return named
    return profiles.for_url(url)


@contextmanager
def connected(
    url: str | None, as_actor: str | None, token_file: str | None, profile: str | None, *, nameless: bool = False
) -> "Iterator[Client]":
    """A client whose refusals are sentences with a next step. With `nameless` a caller need not be named."""
    chosen = choose(url, as_actor, token_file, profile)
    if not callers(as_actor, token_file, profile) and chosen.profile is None and not nameless:
        raise WrongUse(
            "Who is calling? Sign in with `watchword login`, set WATCHWORD_TOKEN, give --token-file FILE, "
            "or on the machine of a server in local mode --as urn:li:corpuser:<name>."
        )
    token = _read_token(token_file) if token_file is not None else load_client().token or chosen.token
    with plain_refusals(by_name=as_actor is not None, profile=chosen.profile):
        _tell_of_its_end(chosen)
        with opened(chosen.url, token, as_actor) as client:
            yield client


@contextmanager
def opened(url: str, token: Secret[str] | None, as_actor: str | None = None) -> "Iterator[Client]":
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


def _tell_of_its_end(chosen: Chosen) -> None:
    """While there is time to do something about it; once it has ended, the server says so."""
    token = chosen.token
    if token is None or chosen.profile is None:
        return
    from watchword.cli.show import human
    from watchword.client.claims import life_of

    life = life_of(token)
    left = None if life is None else life.left()
    if life is not None and left is not None and 0 < left < LAST_DAYS and life.spent() > LAST_PART:
        sys.stderr.write(
            f"watchword: The token of profile {chosen.profile.name} ends {human(int(left * 1000))}. "
            f"Renew it: watchword token rotate --profile {chosen.profile.name}\n"
        )


@contextmanager
def plain_refusals(*, by_name: bool = False, profile: Profile | None = None) -> Iterator[None]:
    """Around what the client does."""
    with left_out("httpx._main"):  # a command of its own, which takes as long to load as the rest of it
        from watchword.client import WatchwordError

    try:
        yield
    except WatchwordError as error:
        raise OperatorError(told(error, by_name=by_name, profile=profile)) from error


def told(error: "WatchwordError", *, by_name: bool, profile: Profile | None = None) -> str:
    """The server's sentence and what to do next."""
    from watchword.client import BadRequest, NotFound, ServerError, Unauthenticated, Unavailable, Unreachable

    sentence = in_our_words(str(error)) if isinstance(error, BadRequest | NotFound) else str(error)
    match error:
        case Unreachable() if "CERTIFICATE_VERIFY_FAILED" in sentence:
            return f"{sentence} If it has a certificate of its own, name its file by SSL_CERT_FILE."
        case Unreachable():
            return f"{sentence} Start it with `watchword serve`, or name another by --url or WATCHWORD_URL."
        case Unauthenticated() if by_name and "the server runs as user" in sentence:
            return f"{sentence} Run it as the user that the server runs as, or set WATCHWORD_TOKEN."
        case Unauthenticated() if by_name:
            return (
                f"{sentence} --as names a caller to a server in local mode alone, and none that is suspended; "
                "otherwise set WATCHWORD_TOKEN."
            )
        case Unauthenticated() if profile is not None:
            return f"{sentence} Sign in again: watchword login --profile {profile.name}"
        case Unauthenticated():
            return f"{sentence} Make another token: watchword token create --help"
        case Unavailable():
            return f"{sentence} Try again in a moment."
        case ServerError():
            return f"{sentence} Its log has more under the request id {error.request_id}."
    return sentence


def _read_token(file: str) -> Secret[str]:
    return token_in(read_input if file == "-" else lambda most: _head(file, most), "--token-file")


def token_in(read: Callable[[int], bytes], source: str) -> Secret[str]:
    """A file that was meant for something else is neither read to its end nor repeated back."""
    content = read(LONGEST_TOKEN + 1)
    text = content.decode("utf-8", "replace").strip()
    if not text or len(content) > LONGEST_TOKEN:
        named = "must name a file that holds" if source.startswith("--") else "must hold"
        raise WrongUse(f"{source} {named} a token and nothing else.")
    return Secret(text)


def _head(path: str, most: int) -> bytes:
    """Opened without waiting, for nobody may ever write to what is not a file."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise WrongUse("--token-file must name a regular file. From anything else, send it to: --token-file -")
        return os.read(opened, most)
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
