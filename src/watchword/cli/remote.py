"""Commands that ask a server: its address, the caller, and the next step after an error. All requests go through
`watchword.client`.

The caller is never guessed: a token from WATCHWORD_TOKEN or --token-file, or --as, or --profile; two of these are wrong
use. Where none is given, the profile that `watchword login` stored for the server is used.
"""

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property, wraps
from io import StringIO
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import click

from watchword import client as api
from watchword.basics.errors import OperatorError, Reason
from watchword.basics.interpreter import without_httpx_command
from watchword.basics.names import GROUP_PREFIX, USER_PREFIX
from watchword.basics.secret import Secret
from watchword.cli.options import (
    CommandFunction,
    Decorator,
    actor_urn,
    add_options,
    format_flags,
    full_urn,
    global_flag,
    limit_flags,
    series,
    urns_flag,
)
from watchword.cli.output import flag, is_data, one_line, relative, warn
from watchword.cli.run import WrongUse, parameter_name, read_input, try_help
from watchword.client.profiles import (
    ChosenServer,
    ClientEnvironment,
    Profile,
    Profiles,
    choose_server,
    read_environment,
)
from watchword.client.records import read_claims
from watchword.settings import reject_unknown

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

T = TypeVar("T")
MAX_TOKEN_BYTES = 65_536
EXPIRY_WARNING, EXPIRY_WARNING_PART = timedelta(days=3), 0.8
"""Warn when less than this time and at most the last fifth of a token's lifetime are left."""
POLL_SECONDS = 0.5
COMPLETION_SECONDS, MAX_COMPLETED = 2.0, 200
_PLAIN = re.compile(r"[\w@%+=:,./][\w@%+=:,./-]*", re.ASCII)
PATIENCE_SECONDS = 120.0
"""How long a server may be unavailable while its operations or events are watched."""


def load_client() -> ClientEnvironment:
    reject_unknown()
    return read_environment()


def stored_profiles() -> Profiles:
    return Profiles(load_client().folder)


def complete_profiles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in stored_profiles().names if name.startswith(incomplete)]
    except (OperatorError, click.ClickException, OSError):  # reported when a command runs, not while it is typed
        return []


Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def completes(
    find: Callable[["api.Client", str], Iterable[Any]],
    read: Callable[[Any], tuple[str, str | None]] = attrgetter("urn", "name"),
    prefix: str = "",
) -> Complete:
    """Complete ids that the server has, without the prefix: those that begin as typed, or else whose name does.

    Shells put them on the command line as they are, so that one with a sign that a shell acts on is not offered.
    """

    def complete(context: click.Context, _parameter: click.Parameter, typed: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        caller = ServerFlags(**{field.name: context.params.get(field.name) for field in fields(ServerFlags)})
        if _reads_input([caller.token_file]):  # not before the command runs
            return []
        try:
            with redirect_stderr(StringIO()), caller.open(timeout=COMPLETION_SECONDS, retries=0) as client:
                found = dict(read(one) for one in islice(find(client, typed), MAX_COMPLETED))
        except Exception:  # noqa: BLE001 - errors are reported when a command runs, not while it is typed
            return []
        items = [
            CompletionItem(short, help=title and one_line(title))
            for word, title in found.items()
            if _PLAIN.fullmatch(short := word.removeprefix(prefix))
        ]
        begin = [item for item in items if item.value.startswith(typed)]
        return begin or [item for item in items if (item.help or "").lower().startswith(typed.lower())]

    return complete


by_id, by_display_name = attrgetter("id", "name"), attrgetter("urn", "display_name")
complete_actors = completes(lambda client, typed: client.actors.list(prefix=typed), by_display_name, USER_PREFIX)
complete_groups = completes(lambda client, _: client.groups.list(), prefix=GROUP_PREFIX)
complete_series = completes(
    lambda client, _: client.series.list(), lambda size: (f"{size.entity_name}.{size.aspect_name}", None)
)
ACTOR: dict[str, Any] = {"type": actor_urn, "shell_complete": complete_actors}  # of a flag or an argument
actor_argument = click.argument("urn", metavar="ACTOR", **ACTOR)
series_argument = click.argument("series", metavar="ENTITY.ASPECT", type=series, shell_complete=complete_series)


def urn_argument(name: str, prefix: str, complete: Complete) -> Decorator:
    """The argument `urn`: a URN, or the part after its prefix."""
    return click.argument(
        "urn", metavar=name, callback=lambda _c, _p, value: full_urn(value, prefix), shell_complete=complete
    )


def profile_flag(text: str) -> Decorator:
    return click.option("--profile", metavar="NAME", help=text, shell_complete=complete_profiles)


_connection_flags = add_options(
    global_flag("url"),
    global_flag("as_actor", type=actor_urn),
    global_flag("token_file"),
    global_flag("profile"),
)


@dataclass(frozen=True)
class ServerFlags:
    """The server and the caller that the flags name; the environment and the profiles add the rest."""

    url: str | None = None
    as_actor: str | None = None
    token_file: str | None = None
    profile: str | None = None

    @cached_property
    def named_caller(self) -> bool:
        """Whether a caller is named explicitly, in one place."""
        sources = {
            "WATCHWORD_TOKEN": load_client().token,
            "--token-file": self.token_file,
            "--as": self.as_actor,
            "--profile": self.profile,
        }
        given = [name for name, value in sources.items() if value is not None]
        if len(given) > 1:
            raise WrongUse(f"{' and '.join(given)} each name a caller. Give only one.")
        return bool(given)

    @cached_property
    def target(self) -> ChosenServer:
        named = self.named_caller
        return choose_server(load_client(), stored_profiles(), has_caller=named, url=self.url, profile=self.profile)

    @property
    def has_caller(self) -> bool:
        return self.named_caller or self.target.profile is not None

    @contextmanager
    def open(self, *, anonymous: bool = False, **how: Any) -> "Iterator[api.Client]":
        """A client whose errors are sentences with a next step. With `anonymous`, no caller is required."""
        profile = self.target.profile
        if not self.has_caller and not anonymous:
            raise WrongUse(
                "Who is calling? Sign in with `watchword login`, set WATCHWORD_TOKEN, pass --token-file FILE, "
                "or pass --as NAME on the machine of a server in local mode."
            )
        token = load_client().token if self.token_file is None else _read_token_file(self.token_file)
        if profile is not None:
            token = stored_profiles().token(profile)
            _warn_of_expiry(profile, token)
        with open_client(self.target, token, self.as_actor, **how) as client:
            yield client


def with_connection(command: CommandFunction) -> CommandFunction:
    """Add the flags for server and caller; the command gets `connection`."""

    @wraps(command)
    def run(*args: Any, **flags: Any) -> Any:
        named = {field.name: flags.pop(field.name) for field in fields(ServerFlags)}
        return command(*args, connection=ServerFlags(**named), **flags)

    return _connection_flags(run)


def with_client(command: CommandFunction) -> CommandFunction:
    """Add -o, --json and the flags for server and caller; the command gets `client`."""
    return format_flags(with_client_only(command))


def with_list(*, urns: bool = False) -> Decorator:
    """Add what `with_client` adds, --limit, --all, and maybe --urns."""
    return add_options(*([urns_flag] if urns else []), limit_flags, with_client)


def hides_others(client: "api.Client", privilege: str) -> bool:
    """Whether to say that a list shows only the caller's own: people who may list all could take it for everyone's."""
    return not is_data() and privilege in client.privileges.granted(client.me().urn)


def with_client_only(command: CommandFunction) -> CommandFunction:
    """Add the flags for server and caller; the command gets `client`."""

    @wraps(command)
    def run(*args: Any, connection: ServerFlags, **flags: Any) -> Any:
        if _reads_input([connection.token_file]) and _reads_input(flags.values()):
            raise WrongUse("Standard input can be read once: for --token-file or for -, not both.")
        with connection.open() as client:
            return command(*args, client=client, **flags)

    return with_connection(run)


def _reads_input(values: Iterable[Any]) -> bool:
    return any(str(word) == "-" for value in values for word in (value if isinstance(value, tuple) else (value,)))


@contextmanager
def open_client(
    server: ChosenServer, token: Secret[str] | None, as_actor: str | None = None, **how: Any
) -> "Iterator[api.Client]":
    with plain_refusals(server, by_name=as_actor is not None):
        from watchword.client.http_clients import is_encrypted, is_loopback

        try:
            client = api.Client(server.url, token=token, actor=as_actor, **how)
        except ValueError as error:
            raise WrongUse(_of_client(str(error))) from None
        if token is not None and not is_encrypted(server.url) and not is_loopback(server.url):
            warn(f"warning: the token goes to {server.url} unencrypted. Use https.")
        with client:
            yield client


def _of_client(sentence: str) -> str:
    """An error of the client's constructor, with the name of the flag in place of the argument."""
    for theirs, ours in {"actor ": "--as ", "token ": "The token ", "url ": "--url "}.items():
        if sentence.startswith(theirs):
            return ours + sentence.removeprefix(theirs)
    return sentence


def _warn_of_expiry(profile: Profile, token: Secret[str]) -> None:
    """Warn before a stored token expires; after that, the server says so."""
    claims = read_claims(token)
    if claims is None or claims.expires_at is None or claims.elapsed_share() <= EXPIRY_WARNING_PART:
        return
    left = claims.expires_at - datetime.now(UTC)
    if timedelta(0) < left < EXPIRY_WARNING:
        warn(
            f"The token of profile {profile.name} expires {relative(left // timedelta(milliseconds=1))}. "
            f"Rotate it: watchword token rotate --profile {profile.name}"
        )


@contextmanager
def plain_refusals(server: ChosenServer, *, by_name: bool = False) -> Iterator[None]:
    """Turn errors of the client into sentences with a next step."""
    with without_httpx_command():
        import watchword.client.http_clients  # noqa: F401 - loads httpx

    try:
        yield
    except api.WatchwordError as error:
        raise OperatorError(explain(error, server, by_name=by_name)) from error


def explain(error: api.WatchwordError, server: ChosenServer | None = None, *, by_name: bool = False) -> str:
    """The server's sentence and the next step."""
    sentence = in_flag_names(error) if isinstance(error, api.BadRequest | api.NotFound) else str(error)
    match error:
        case api.Unreachable() if "CERTIFICATE_VERIFY_FAILED" in sentence:
            next_step = "If the server's certificate is self-signed, name its file in SSL_CERT_FILE."
        case api.Unreachable():
            next_step = "Start it with `watchword serve`, or name another server by --url or WATCHWORD_URL."
            next_step = _other_scheme(error, server) or next_step
        case api.Unauthenticated() if by_name and error.reason == Reason.MISSING_CREDENTIAL.word:
            next_step = "--as needs a server in local mode and the user that it runs as. Or set WATCHWORD_TOKEN."
        case api.Unauthenticated() if by_name:
            next_step = "--as needs a user who is not suspended. Or set WATCHWORD_TOKEN."
        case api.Unauthenticated() if server and server.profile:
            next_step = f"Sign in again: watchword login --profile {server.profile.name}"
        case api.Unauthenticated():
            next_step = "Create another token: watchword token create --help"
        case api.Unavailable():
            minutes = int(error.retry_after or 0) // 60
            next_step = "Try again in a moment." if minutes < 2 else f"Try again in {minutes} minutes."
        case api.ServerError():
            next_step = f"The server's log has more under request id {error.request_id}."
        case _:
            return sentence
    return f"{sentence} {next_step}"


def _other_scheme(error: api.Unreachable, server: ChosenServer | None) -> str | None:
    """Where http meets a TLS port, also one that only closes the connection."""
    if error.use_url is not None:
        return f"Pass --url {error.use_url}"
    scheme, _, rest = ("" if server is None else server.url).partition("://")
    if scheme.lower() != "http":
        return None
    from watchword.client.http_clients import speaks_tls

    return f"The server uses TLS on this port. Pass --url https://{rest}" if speaks_tls(f"http://{rest}") else None


def patiently(begin: Callable[[], Iterator[T]]) -> Iterator[T]:
    """Iterate again from the beginning when the server is unavailable, as during a restart, once it has answered."""
    answered_at: float | None = None
    while True:
        try:
            for answer in begin():
                answered_at = time.monotonic()
                yield answer
        except (api.Unavailable, api.Unreachable):
            if answered_at is None or time.monotonic() - answered_at > PATIENCE_SECONDS:
                raise
        else:
            return
        time.sleep(POLL_SECONDS)


# Arguments of the client whose parameter has another name here; the first that the command has is used.
_PARAMETERS = {
    "actor_urn": ("actor", "urn"),
    "all": ("all_actors",),
    "actors.all_users": ("all_users",),
    "actors.groups": ("groups",),
    "actors.users": ("users",),
    "delivery_id": ("delivery",),
    "display_name": ("name",),
    "end_time": ("older_than", "until"),
    "group_urn": ("urn",),
    "id": ("id_", "task_id", "session_id", "token_id"),
    "query": ("search",),
    "task": ("task_id",),
    "url": ("to",),
    "user_urns": ("users",),
}
_PHRASES = {"See getIndexSizes.": "See: watchword index sizes", "entityType": "entity"}


def in_flag_names(error: api.BadRequest | api.NotFound) -> str:
    """The error, which names the client's argument first, with the name of the flag instead."""
    sentence = str(error)
    for server_phrase, phrase in _PHRASES.items():
        sentence = re.sub(rf"(?<!\w){re.escape(server_phrase)}(?!\w)", phrase, sentence)
    argument = error.argument if isinstance(error, api.BadRequest) else None
    context = click.get_current_context(silent=True)
    if argument is None or context is None or not sentence.startswith(argument):
        return sentence
    word = argument.partition("[")[0]
    params = {param.name: param for param in context.command.params}
    param = next((params[name] for name in _PARAMETERS.get(word, (word,)) if name in params), None)
    return sentence if param is None else f"{parameter_name(param)}{sentence.removeprefix(argument)} {try_help()}"


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


def can_ask() -> bool:
    return sys.stdin.isatty()


def need_confirmation() -> None:
    """Fail early if a prompt is needed but there is no terminal."""
    given = click.get_current_context().params
    if not given.get("dry_run") and not flag("yes") and not can_ask():
        preview = " or --dry-run to preview" if "dry_run" in given else ""
        raise WrongUse(f"Not a terminal. Pass --yes to confirm{preview}.")


def confirm(question: str) -> None:
    """Ask before something is destroyed. Without a terminal, --yes is required."""
    need_confirmation()
    sys.stdout.flush()  # what the question is about comes first
    if not flag("yes") and not click.confirm(one_line(question), err=True):
        raise OperatorError("Nothing was changed.")
