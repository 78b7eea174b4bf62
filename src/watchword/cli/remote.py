"""Commands that ask a server: its address, the caller, and the next step after an error. All requests go through
`watchword.client`.

The caller is never guessed: a token from WATCHWORD_TOKEN or --token-file, or --as, or --profile; two of these are wrong
use. Where none is given, the profile that `watchword login` stored for the server is used.
"""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.options import Command
from watchword.cli.output import relative, warn
from watchword.cli.run import WrongUse, parameter_name, plain_errors, read_input, try_help
from watchword.client.profiles import (
    DEFAULT_URL,
    ChosenServer,
    ClientEnvironment,
    Profile,
    Profiles,
    choose_server,
    read_environment,
)
from watchword.domain.actors import USER_PREFIX
from watchword.domain.errors import OperatorError
from watchword.domain.secret import Secret
from watchword.interpreter import without_modules
from watchword.settings import reject_unknown

if TYPE_CHECKING:
    from watchword.client import Client, WatchwordError

MAX_TOKEN_BYTES = 65_536

CONNECTION = ("url", "as_actor", "token_file", "profile")
EXPIRY_WARNING, EXPIRY_WARNING_PART = timedelta(days=3), 0.8
"""Warn when less than this time and at most the last fifth of a token's lifetime are left."""
TLS_PROBE_SECONDS = 2.0

url_flag = click.option(
    "--url", default=None, help=f"Address of the server. [WATCHWORD_URL; default: the profile's, {DEFAULT_URL}]",
    metavar="URL",
)  # fmt: skip


def load_client() -> ClientEnvironment:
    reject_unknown()
    return read_environment()


def complete_profiles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in Profiles(load_client().folder).names if name.startswith(incomplete)]
    except (OperatorError, click.ClickException, OSError):  # reported when a command runs, not while it is typed
        return []


def _complete_files(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[click.shell_completion.CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]  # the shell completes it


def _actor_urn(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    return value if not value or value.startswith("urn:") else USER_PREFIX + value


def connection_flags(command: Command) -> Command:
    for option in (
        click.option(
            "--profile",
            default=None,
            metavar="NAME",
            help="Server and token that `watchword login` stored. [WATCHWORD_PROFILE; default: the current one]",
            shell_complete=complete_profiles,
        ),
        click.option(
            "--token-file",
            default=None,
            metavar="FILE",
            help="File with the caller's token; - is standard input.",
            shell_complete=_complete_files,
        ),
        click.option(
            "--as",
            "as_actor",
            default=None,
            metavar="NAME",
            callback=_actor_urn,
            help=f"Act as this user on a server in local mode: a URN, or a name for {USER_PREFIX}NAME.",
        ),
        url_flag,
    ):
        command = option(command)
    return command


def with_client(command: Command) -> Command:
    """Give the command a client, made from the connection flags and the environment."""

    @wraps(command)
    def run(*args: Any, **flags: Any) -> Any:
        connection = {flag: flags.pop(flag) for flag in CONNECTION}
        if _reads_input([connection["token_file"]]) and _reads_input(flags.values()):
            raise WrongUse("Standard input can be read once: for --token-file or for -, not both.")
        with plain_errors(), connected(**connection) as client:
            return command(*args, client=client, **flags)

    return connection_flags(run)


def _reads_input(values: Iterable[Any]) -> bool:
    return any(str(word) == "-" for value in values for word in (value if isinstance(value, tuple) else (value,)))


def named_callers(as_actor: str | None, token_file: str | None, profile: str | None) -> list[str]:
    """Where a caller is named explicitly; at most one place."""
    sources = {
        "WATCHWORD_TOKEN": load_client().token,
        "--token-file": token_file,
        "--as": as_actor,
        "--profile": profile,
    }
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise WrongUse(f"{' and '.join(given)} each name a caller. Give only one.")
    return given


def choose_target(url: str | None, as_actor: str | None, token_file: str | None, profile: str | None) -> ChosenServer:
    given = named_callers(as_actor, token_file, profile)
    settings = load_client()
    return choose_server(settings, Profiles(settings.folder), has_caller=bool(given), url=url, profile=profile)


def _profile_token(target: ChosenServer) -> Secret[str] | None:
    return None if target.profile is None else Profiles(load_client().folder).token(target.profile)


def has_caller(**connection: Any) -> bool:
    names = {name: connection[name] for name in ("as_actor", "token_file", "profile")}
    return bool(named_callers(**names)) or choose_target(**connection).profile is not None


@contextmanager
def connected(
    url: str | None, as_actor: str | None, token_file: str | None, profile: str | None, *, anonymous: bool = False
) -> "Iterator[Client]":
    """A client whose errors are sentences with a next step. With `anonymous`, no caller is required."""
    target = choose_target(url, as_actor, token_file, profile)
    if not named_callers(as_actor, token_file, profile) and target.profile is None and not anonymous:
        raise WrongUse(
            "Who is calling? Sign in with `watchword login`, set WATCHWORD_TOKEN, pass --token-file FILE, "
            "or pass --as NAME on the machine of a server in local mode."
        )
    token = _read_token_file(token_file) if token_file is not None else load_client().token or _profile_token(target)
    with plain_refusals(by_name=as_actor is not None, profile=target.profile, url=target.url):
        _warn_of_expiry(target)
        with open_client(target.url, token, as_actor) as client:
            yield client


@contextmanager
def open_client(url: str, token: Secret[str] | None, as_actor: str | None = None) -> "Iterator[Client]":
    from watchword.client import Client
    from watchword.client.http_clients import is_encrypted, is_loopback

    try:
        client = Client(url, token=token, actor=as_actor)
    except ValueError as error:
        raise WrongUse(str(error)) from None
    if token is not None and not is_encrypted(url) and not is_loopback(url):
        warn(f"warning: the token goes to {url} unencrypted. Use https.")
    with client:
        yield client


def _warn_of_expiry(target: ChosenServer) -> None:
    """Warn before a stored token expires; after that, the server says so."""
    token = _profile_token(target)
    if token is None or target.profile is None:
        return
    from watchword.client.records import read_claims

    claims = read_claims(token)
    left = None if claims is None else claims.remaining()
    if claims is None or left is None or claims.elapsed_share() <= EXPIRY_WARNING_PART:
        return
    if timedelta(0) < left < EXPIRY_WARNING:
        warn(
            f"The token of profile {target.profile.name} expires {relative(left // timedelta(milliseconds=1))}. "
            f"Rotate it: watchword token rotate --profile {target.profile.name}"
        )


@contextmanager
def plain_refusals(*, by_name: bool = False, profile: Profile | None = None, url: str | None = None) -> Iterator[None]:
    """Turn errors of the client into sentences with a next step."""
    with without_modules("httpx._main"):  # httpx's own command line, which takes as long to import as the rest of httpx
        from watchword.client import Client, WatchwordError  # noqa: F401 - Client loads httpx

    try:
        yield
    except WatchwordError as error:
        raise OperatorError(explain(error, by_name=by_name, profile=profile, url=url)) from error


def explain(
    error: "WatchwordError", *, by_name: bool = False, profile: Profile | None = None, url: str | None = None
) -> str:
    """The server's sentence and the next step."""
    from watchword.client import BadRequest, NotFound, ServerError, Unauthenticated, Unavailable, Unreachable

    sentence = in_flag_names(error.message) if isinstance(error, BadRequest | NotFound) else str(error)
    match error:
        case Unreachable() if "CERTIFICATE_VERIFY_FAILED" in sentence:
            return f"{sentence} If the server's certificate is self-signed, name its file in SSL_CERT_FILE."
        case Unreachable():
            next_step = "Start it with `watchword serve`, or name another server by --url or WATCHWORD_URL."
            return f"{sentence} {_wrong_scheme(url, sentence) or next_step}"
        case Unauthenticated() if by_name and "the server runs as user" in sentence:
            return f"{sentence} Run it as that user, or set WATCHWORD_TOKEN."
        case Unauthenticated() if by_name:
            return (
                f"{sentence} --as needs a server in local mode and a user who is not suspended. Or set WATCHWORD_TOKEN."
            )
        case Unauthenticated() if profile is not None:
            return f"{sentence} Sign in again: watchword login --profile {profile.name}"
        case Unauthenticated():
            return f"{sentence} Create another token: watchword token create --help"
        case Unavailable():
            return f"{sentence} Try again in a moment."
        case ServerError():
            return f"{sentence} The server's log has more under request id {error.request_id}."
    return sentence


def _wrong_scheme(url: str | None, sentence: str) -> str | None:
    """What to do where http meets a TLS port, or https a plain one."""
    if url is None or "://" not in url:
        return None
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "https" and ("WRONG_VERSION_NUMBER" in sentence or "RECORD_LAYER_FAILURE" in sentence):
        return f"The server does not use TLS on this port. Use: --url http://{rest}"
    if scheme.lower() == "http" and speaks_tls(url):
        return f"The server uses TLS on this port. Use: --url https://{rest}"
    return None


def speaks_tls(url: str) -> bool:
    """Whether a TLS handshake with this address succeeds; sends nothing else."""
    import socket
    import ssl
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only the protocol matters here; no secret is sent
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 80), TLS_PROBE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except (OSError, ValueError):
        return False


# API fields whose flag has another name; the first that the command has is used.
_FLAG_NAMES = {
    "actorUrn": ("actor", "urn"),
    "actorUrns": ("actors",),
    "aboutUrns": ("about",),
    "allowedNetworks": ("networks",),
    "displayName": ("name",),
    "durationIso": ("duration",),
    "endTimeMillis": ("older_than", "until"),
    "entityType": ("entity",),
    "forceDeleteByQuery": ("delete",),
    "forceReindex": ("copy",),
    "groupUrn": ("urn",),
    "id": ("id_", "token_id", "task_id"),
    "ownerUrn": ("owner",),
    "query": ("contains", "query"),
    "task": ("task_id",),
    "timeoutSeconds": ("timeout",),
    "tokenId": ("token_id",),
    "userUrns": ("users",),
}
_FIELD = re.compile(r"(?:input\.)?([a-z][A-Za-z]*)((?:\[\d+\])?)(?![\w.])")
_PHRASES = {"See getIndexSizes.": "See: watchword index sizes", "entityType": "entity"}


def in_flag_names(sentence: str) -> str:
    """A server's error, which names the API field first, with the name of the flag instead."""
    for theirs, ours in _PHRASES.items():
        if not sentence.startswith(theirs):
            sentence = re.sub(rf"(?<!\w){re.escape(theirs)}(?!\w)", ours, sentence)
    found = _FIELD.match(sentence)
    flag = None if found is None else _flag_of(found[1])
    return sentence if found is None or flag is None else f"{flag}{sentence[found.end() :]} {try_help()}"


def _flag_of(field: str) -> str | None:
    context = click.get_current_context(silent=True)
    params = {} if context is None else {param.name: param for param in context.command.params}
    snake_case = re.sub(r"(?<=[a-z])[A-Z]", lambda capital: f"_{capital[0].lower()}", field)
    for name in (*_FLAG_NAMES.get(field, ()), snake_case):
        if name in params:
            return parameter_name(params[name])
    return None


def _read_token_file(file: str) -> Secret[str]:
    return read_token(read_input if file == "-" else lambda most: _read_start(file, most), "--token-file")


def read_token(read: Callable[[int], bytes], source: str) -> Secret[str]:
    """The token; a file that was meant for something else is neither read to its end nor printed."""
    content = read(MAX_TOKEN_BYTES + 1)
    text = content.decode("utf-8", "replace").strip()
    if not text or len(content) > MAX_TOKEN_BYTES:
        named = "must name a file that holds" if source.startswith("--") else "must hold"
        raise WrongUse(f"{source} {named} a token and nothing else.")
    return Secret(text)


def _read_start(path: str, most: int) -> bytes:
    """The start of a regular file; opening a pipe must not wait for a writer."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise WrongUse(
                "--token-file must name a regular file. For anything else, use --token-file - and redirect it."
            )
        return os.read(opened, most)
    finally:
        os.close(opened)


def urn_argument(name: str, prefix: str) -> Callable[[Command], Command]:
    """The argument `urn`: a URN, or the part after its prefix."""
    return click.argument(
        "urn", metavar=name, callback=lambda _c, _p, value: value if value.startswith("urn:") else prefix + value
    )


def can_ask() -> bool:
    return sys.stdin.isatty()


def need_confirmation(*, yes: bool, dry_run: bool = False) -> None:
    """Fail early where a question is due and nobody can answer it."""
    if not dry_run and not yes and not can_ask():
        raise WrongUse("Not a terminal. Pass --yes to confirm or --dry-run to preview.")


def confirm(question: str, *, yes: bool) -> None:
    """Ask at a terminal; a script has decided already."""
    sys.stdout.flush()  # what the question is about comes first
    if not yes and can_ask() and not click.confirm(question, err=True):
        raise OperatorError("Nothing was changed.")
