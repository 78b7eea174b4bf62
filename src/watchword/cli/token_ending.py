"""`watchword token revoke`: tokens by their ids, each told; or all that some flags mean, in one moment."""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.remote import can_be_asked, confirm, told, with_client, yes_flag
from watchword.cli.selecting import Asked, narrowing
from watchword.cli.show import Column, iso, named, say, show_list
from watchword.cli.streams import WrongUse, read_input
from watchword.cli.text import as_json as json_text
from watchword.cli.text import one_line
from watchword.domain.errors import Fault
from watchword.domain.tokens import check_token_id

if TYPE_CHECKING:
    from watchword.client import ActorTokenCount, Client

COLUMNS: "list[Column[ActorTokenCount]]" = [
    Column("TOKENS", lambda share: share.count),
    Column("ACTOR", lambda share: share.actor_urn),
]


@click.command()
@click.argument("token_ids", metavar="[ID]...", nargs=-1)
@narrowing
@click.option("--cascade", is_flag=True, help="Also those that were minted with one of them.")
@click.option("--dry-run", is_flag=True, help="Only show how many, and whose.")
@yes_flag
@json_flag
@with_client
def revoke(
    client: "Client",
    token_ids: tuple[str, ...],
    asked: Asked,
    cascade: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """End tokens, and those derived from them. What is said to be revoked is dead on every instance.

    By ID or urn each is ended and told by itself. A - stands for ids read from standard input, one a line or as
    `token list --json` prints them.

    By flags, which mean what they mean to `token list`, all are ended in one moment, or none: it shows how many and
    whose, asks, and prints a receipt.

    \b
    Example: watchword token revoke kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=
    Example: watchword token revoke --actor urn:li:corpuser:mallory
    Example: watchword token revoke --all --unused-for 90d --yes
    """
    if asked.is_given:
        if token_ids:
            raise WrongUse("Give ids, or flags that say which tokens are meant, not both.")
        _end_all(client, asked, cascade=cascade, dry_run=dry_run, yes=yes, as_json=as_json)
    elif dry_run or yes or as_json:
        raise WrongUse("--dry-run, --yes and --json go with flags that say which tokens are meant, such as --actor.")
    elif not token_ids:
        raise WrongUse("Which tokens? Give their ids, or flags such as --actor urn:li:corpuser:alice.")
    else:
        _end_each(client, token_ids, cascade=cascade)


def _end_all(client: "Client", asked: Asked, *, cascade: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    if not dry_run and not yes and not can_be_asked():
        raise WrongUse("Nobody can be asked here: give --yes to revoke, or --dry-run to see how many, and whose.")
    where = asked.where(client)
    plan = client.plan_revocation(*where, everything=asked.everyone, cascade=cascade)
    if dry_run and as_json:
        say(json_text(named(plan)))
        return
    if not as_json:
        if plan.count:
            show_list(plan.actors, COLUMNS, json=False, empty="")
        say(f"{_tokens(plan.count)} to revoke.")
    if dry_run:
        say("This was a dry run: nothing was changed. Without --dry-run it asks, and does it.")
        return
    if not plan.count and not as_json:
        return
    confirm(f"Revoke {_tokens(plan.count)} for good?", yes=yes)
    # Who was asked has seen a number; a script has not.
    seen = None if yes else plan.count
    receipt = client.revoke_tokens(*where, everything=asked.everyone, cascade=cascade, at_most=seen)
    if as_json:
        say(json_text(named(receipt)))
    else:
        say(f"Revoked {_tokens(receipt.count)} at {iso(receipt.revoked_at)}. Receipt: {one_line(receipt.digest)}")


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def _end_each(client: "Client", token_ids: Iterable[str], *, cascade: bool) -> None:
    from watchword.client import BadRequest, Conflict, NotFound

    failed = False
    for number, token_id in enumerate(_ids(token_ids), 1):
        if not _is_id(token_id):
            failed = True
            sys.stderr.write(f"watchword: Number {number} of those given is no id. Find it by: watchword token list\n")
            continue
        try:
            client.revoke_token(token_id, cascade=cascade)
        except (BadRequest, Conflict, NotFound) as error:
            failed = True
            sys.stderr.write(f"watchword: {one_line(f'{token_id}: {told(error, by_name=False)}')}\n")
        else:
            say(f"Revoked {token_id}")
            sys.stdout.flush()
    if failed:
        raise SystemExit(1)


def _is_id(word: str) -> bool:
    """Anything else may be a secret, such as the token itself, and is neither sent nor repeated."""
    try:
        check_token_id(word, "ID")
    except Fault:
        return False
    return True


def _ids(given: Iterable[str]) -> Iterator[str]:
    for word in given:
        if word != "-":
            yield word
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
            raise WrongUse("Standard input must hold ids, or what `watchword token list --json` prints.")
        yield from found
