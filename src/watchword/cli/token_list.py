"""`watchword token list` and `token revoke`: many tokens, which flags select."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from watchword import client as api
from watchword.basics.errors import Fault, OperatorError
from watchword.basics.secret import Secret
from watchword.cli import output as out
from watchword.cli.options import (
    CommandFunction,
    add_options,
    all_actors_flag,
    duration,
    page_size,
    time_ago,
    time_ahead,
    yes_flag,
)
from watchword.cli.remote import (
    ACTOR,
    by_id,
    can_ask,
    completes,
    confirm,
    explain,
    hides_others,
    need_confirmation,
    with_client,
    with_list,
)
from watchword.cli.run import Command, WrongUse, read_input
from watchword.client.errors import BadRequest, Conflict, NotFound, Unauthorized
from watchword.tokens.filters import SortField
from watchword.tokens.rules import SUSPENDED, TokenStatus, check_token_id

MAX_SHOWN_FAMILY = 200
_ACTOR_COLUMNS = out.columns(
    "TOKENS=count", out.Column("ACTOR", lambda share: out.with_name(share.actor_urn, share.actor_name))
)
_COLUMNS = out.columns(
    "id, name*, STATUS=effective_status",
    out.Column("EXPIRES", lambda token: out.TimeCell(token.expires_at, "never")),
    "USED=last_used_at",
    out.Column("ACTOR", "actor_urn", name="actor_name"),
)
complete_tokens = completes(
    lambda client, typed: client.tokens.list(
        api.TokenFilter("actorUrn", client.me().urn), api.TokenFilter("text", typed, condition="CONTAIN")
    ),
    by_id,
)
token_argument = click.argument("token_id", metavar="ID_OR_NAME", shell_complete=complete_tokens)
_SORT = click.Choice([field.value.word for field in SortField], case_sensitive=False)


def find_token(client: "api.Client", word: str) -> str:
    """The id or URN as it is given, or the id of the caller's live token with this name."""
    with suppress(Fault):
        check_token_id(word, "ID")
        return word
    found: dict[str, None] = {}
    if out.without_tokens(word) == word:  # else it is a secret
        where = api.TokenFilter("name", word), api.TokenFilter("status", "ACTIVE")
        me = client.me().urn
        found |= dict.fromkeys(one.id for one in client.tokens.page(api.TokenFilter("actorUrn", me), *where).items)
        with suppress(Unauthorized):  # a limited token lists only those that act as its actor
            found |= dict.fromkeys(one.id for one in client.tokens.page(api.TokenFilter("ownerUrn", me), *where).items)
    if not found:
        raise OperatorError(
            f"ID_OR_NAME must be an id or the name of a live token of yours. {out.without_tokens(word)!r} is neither. "
            "Find ids with: watchword token list --search TEXT"
        )
    if len(found) > 1:
        raise OperatorError(f"Several live tokens of yours have the name {word!r}. Pass an id: {', '.join(found)}")
    (token_id,) = found
    if can_ask():
        out.warn(f"{word!r} is the token {token_id}.")
    return token_id


class _Filter:
    """A flag that selects tokens, and the filter of the API that it stands for."""

    def __init__(self, flag: str, field: str, condition: str, text: str, **how: Any) -> None:
        self.name = flag.removeprefix("--").replace("-", "_")
        self.field = field
        self.condition = condition
        self.option = click.option(flag, help=text, **how)


_FROM_NOW, _AGO = "A date, a time, or a duration from now.", "A date, a time, or a duration back."
_STATUS = click.Choice([*(status.name for status in TokenStatus), SUSPENDED], case_sensitive=False)
_FILTERS = (
    _Filter("--actor", "actorUrn", "EQUAL", "Tokens that act as this user.", **ACTOR),
    _Filter("--owner", "ownerUrn", "EQUAL", "Tokens that this user created.", **ACTOR),
    _Filter("--status", "effectiveStatus", "IN", "Repeatable. [default: all but REVOKED]", type=_STATUS, multiple=True),
    _Filter("--search", "text", "CONTAIN", "Text in name, description, id, actor or owner.", metavar="TEXT"),
    _Filter("--scope", "scope", "EQUAL", "Tokens that name this scope."),
    _Filter("--network", "lastNetwork", "EQUAL", "Tokens last used from this network.", metavar="CIDR"),
    _Filter("--expires-before", "expiresAt", "LESS_THAN", _FROM_NOW, type=time_ahead),
    _Filter("--expires-after", "expiresAt", "GREATER_THAN_OR_EQUAL_TO", _FROM_NOW, type=time_ahead),
    _Filter("--created-before", "createdAt", "LESS_THAN", _AGO, type=time_ago),
    _Filter("--created-after", "createdAt", "GREATER_THAN_OR_EQUAL_TO", _AGO, type=time_ago),
    _Filter("--used-before", "lastUsedAt", "LESS_THAN", "Last used before this.", type=time_ago),
    _Filter("--unused-for", "lastActivityAt", "LESS_THAN", "Neither created nor used for this long.", type=duration),
)


@dataclass(frozen=True, slots=True)
class TokenFlags:
    all_actors: bool
    flags: Mapping[str, Any]

    @property
    def is_given(self) -> bool:
        return self.all_actors or any(value not in (None, ()) for value in self.flags.values())

    @property
    def is_own(self) -> bool:
        """No flag names other users, so only the caller's own tokens are selected."""
        return not (self.all_actors or self.flags["actor"] or self.flags["owner"])

    def where(self, client: "api.Client") -> "list[api.TokenFilter]":
        values = dict(self.flags)
        if self.is_own:
            values["actor"] = client.me().urn
        if values["unused_for"] is not None:
            values["unused_for"] = f"PT{values['unused_for'] // 1000}S"
        return [
            api.TokenFilter(one.field, value, condition=one.condition)
            for one in _FILTERS
            if (value := values[one.name]) not in (None, ())
        ]


def with_selection(command: CommandFunction) -> CommandFunction:
    @wraps(command)
    def run(*args: Any, all_actors: bool, **flags: Any) -> Any:
        given = {one.name: flags.pop(one.name) for one in _FILTERS}
        return command(*args, selection=TokenFlags(all_actors, given), **flags)

    return add_options(all_actors_flag, *(one.option for one in _FILTERS))(run)


@click.command("list", cls=Command)
@with_selection
@click.option("--sort", type=_SORT, help="Field to sort by. [default: expiresAt, latest first]")
@click.option("--descending", is_flag=True, help="Sort in descending order.")
@with_list(urns=True)
def list_tokens(client: "api.Client", selection: TokenFlags, sort: str | None, descending: bool) -> None:
    """List your own tokens, or those of --actor, --owner or --all-actors.

    Example: watchword token list --status active --expires-before 7d
    Example: watchword token list --all-actors --unused-for 90d --json --as admin
    """
    sort, descending = sort or "expiresAt", descending or sort is None
    found = client.tokens.list(*selection.where(client), sort=sort, descending=descending, page_size=page_size())
    shown = _COLUMNS[:-1] if selection.is_own and out.on_terminal() else _COLUMNS  # the actor is the caller
    out.show_list(found, shown, "No tokens.", own=selection.is_own and hides_others(client, "MANAGE_ACCESS_TOKENS"))


@click.command(cls=Command)
@click.argument("token_ids", metavar="[ID_OR_NAME]...", nargs=-1, shell_complete=complete_tokens)
@with_selection
@click.option("--cascade", is_flag=True, help="Also revoke tokens that were created with one of them.")
@click.option("--dry-run", is_flag=True, help="Only show what would be revoked: a tree by ids, numbers by flags.")
@yes_flag
@with_client
def revoke(
    client: "api.Client", token_ids: tuple[str, ...], selection: TokenFlags, cascade: bool, dry_run: bool
) -> None:
    """Revoke tokens and everything derived from them. From then on every instance rejects them.

    By id, URN or name, each token is revoked and reported separately; with --dry-run, those that would be revoked with
    it are shown as a tree. A - reads from standard input: ids, one a line or as `token list --json` prints them, or a
    token itself.

    By flags, which work as for `token list`, all matching tokens are revoked together or none is: the command shows how
    many tokens of which users match, asks, and prints a receipt.

    Example: watchword token revoke laptop
    Example: watchword token revoke kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA= --cascade --dry-run
    Example: watchword token revoke - --yes < leaked-token
    Example: watchword token revoke --actor urn:li:corpuser:mallory
    Example: watchword token revoke --all-actors --unused-for 90d --yes
    """
    if selection.is_given and token_ids:
        raise WrongUse("Pass ids, or flags that select tokens, not both.")
    if not selection.is_given and not token_ids:
        raise WrongUse("Which tokens? Pass their ids, or flags such as --actor urn:li:corpuser:alice.")
    need_confirmation()
    if selection.is_given:
        _revoke_selected(client, selection, cascade=cascade, dry_run=dry_run)
        return
    words = list(_read_ids(client, token_ids))
    if dry_run:
        _preview_each(client, words, cascade=cascade)
        return
    confirm(f"Revoke {out.plural(len(words), 'token')}? This cannot be undone.")
    _revoke_each(client, words, cascade=cascade)


def _revoke_selected(client: "api.Client", selection: TokenFlags, *, cascade: bool, dry_run: bool) -> None:
    where = selection.where(client)
    plan = client.tokens.plan_revocation(*where, all=selection.all_actors, cascade=cascade)
    if plan.count:
        out.show_table(plan.actors, _ACTOR_COLUMNS)
    out.say(f"{out.plural(plan.count, 'token')} to revoke.")
    if dry_run:
        out.show_result("This was a dry run. Nothing was revoked.", plan)
        return
    if not plan.count and not out.is_data():
        return
    confirm(f"Revoke {out.plural(plan.count, 'token')}? This cannot be undone.")
    confirmed = None if out.flag("yes") else plan.count  # a user confirmed this number; a script saw none
    receipt = client.tokens.revoke_many(*where, all=selection.all_actors, cascade=cascade, at_most=confirmed)
    revoked = out.plural(receipt.count, "token")
    out.show_result(f"Revoked {revoked} at {out.iso(receipt.revoked_at)}. Receipt: {receipt.digest}", receipt)


def _preview_each(client: "api.Client", words: list[str | OperatorError], *, cascade: bool) -> None:
    """Show what would be revoked with each token, indented below it. The count is the server's."""
    ids = [client.tokens.get(_id_of(client, word)).id for word in words]
    plan = client.tokens.plan_revocation(ids=ids, cascade=cascade)
    tree = list(_family(client, ids, cascade=cascade))
    tokens = [{**out.json_value(one), "depth": depth} for depth, one in tree]
    out.say_data({**out.json_value(plan), "tokens": tokens})
    for depth, one in tree:
        out.say(f"{'  ' * depth}{one.id}  {one.status}  {one.name}  {one.actor_urn}")
    if len(tree) == MAX_SHOWN_FAMILY:
        out.say("…")
    out.say(f"{out.plural(plan.count, 'token')} to revoke.")
    out.say("This was a dry run. Nothing was revoked.")


def _family(client: "api.Client", ids: list[str], *, cascade: bool) -> "Iterator[tuple[int, api.TokenInfo]]":
    """The tokens, each followed by those derived from it (with `cascade` also those created with it), with its depth.
    Dead ones are passed through by a cascade, which revokes what lives below them.
    """
    seen: set[str] = set()
    waiting: list[tuple[int, api.TokenInfo]] = [(0, client.tokens.get(token_id)) for token_id in reversed(ids)]
    while waiting and len(seen) < MAX_SHOWN_FAMILY:
        depth, one = waiting.pop()
        if one.id in seen:
            continue
        seen.add(one.id)
        yield depth, one
        fields = ("parentId", "createdWith") if cascade else ("parentId",)
        below = {found.id: found for field in fields for found in client.tokens.list(api.TokenFilter(field, one.id))}
        for partner in filter(None, (one.replaces, one.replaced_by)):
            with suppress(NotFound):  # purged
                below[partner] = client.tokens.get(partner)
        waiting += [(depth + 1, found) for found in reversed(below.values()) if cascade or found.status == "ACTIVE"]


def _revoke_each(client: "api.Client", words: list[str | OperatorError], *, cascade: bool) -> None:
    failed = False
    revoked: list[str] = []
    try:
        for number, word in enumerate(words, 1):
            token_id = _revoke_one(client, number, word, cascade=cascade)
            if token_id is None:
                failed = True
                continue
            revoked.append(token_id)
            out.say(f"Revoked {token_id}")
            sys.stdout.flush()
    finally:
        out.say_data([{"id": token_id, "revoked": True} for token_id in revoked])
    if failed:
        raise SystemExit(1)


def _id_of(client: "api.Client", word: str | OperatorError) -> str:
    if isinstance(word, OperatorError):
        raise word
    return client.tokens.find(Secret(word)).id if out.is_token(word) else word


def _revoke_one(client: "api.Client", number: int, word: str | OperatorError, *, cascade: bool) -> str | None:
    """Return its id; None: it was not revoked, and a warning says why."""
    is_secret = isinstance(word, str) and out.is_token(word)
    try:
        token_id = _id_of(client, word)
        check_token_id(token_id, "ID")
        client.tokens.revoke(token_id, cascade=cascade)
    except OperatorError as error:
        out.warn(f"Number {number} of those given: {error}")
    except Fault:  # it may be a secret, so that it is not repeated
        out.warn(f"Number {number} of those given is not an id. Find ids with: watchword token list")
    except (BadRequest, Conflict, NotFound, Unauthorized) as error:
        if isinstance(error, Unauthorized) and not is_secret:
            raise
        shown = f"Token {number} of those given" if is_secret else word
        by_possession = " To revoke it as its holder: watchword token scan - --revoke --yes" if is_secret else ""
        out.warn(f"{shown}: {explain(error)}{by_possession}")
    else:
        return token_id
    return None


def _read_ids(client: "api.Client", given: Iterable[str]) -> Iterator[str | OperatorError]:
    """The ids, for - the ids or tokens in standard input, and for a name without one token the error."""
    for word in given:
        if word != "-":
            try:
                yield find_token(client, word)
            except OperatorError as error:
                yield error
            continue
        text = read_input().decode("utf-8", "replace")
        if not text.lstrip().startswith("["):
            yield from text.split()
            continue
        try:
            found = [one["id"] for one in json.loads(text)]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = [None]
        if not all(isinstance(token_id, str) for token_id in found):
            raise WrongUse("Standard input must hold ids, a token, or the output of `watchword token list --json`.")
        yield from found
