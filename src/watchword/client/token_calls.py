"""The calls about tokens; as those of `calls`, they are methods of both clients.

A call that makes a token is sent under an Idempotency-Key, a fresh one unless one is given: asked again under the same
key, the server gives the same token, so that these changes may be tried again when their answer was lost.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from watchword.client.records import (
    Identity,
    Json,
    NewToken,
    RevocationPlan,
    RevocationReceipt,
    TokenInfo,
    record,
    selection,
)
from watchword.client.walks import PAGE_SIZE, Paged, ResultPage, page_of
from watchword.client.wire import FORM, ApiRequest, ask, done
from watchword.domain.accounts import is_account
from watchword.domain.lifetimes import Duration
from watchword.domain.secret import Secret

_TOKEN, _PLAN, _RECEIPT = map(selection, (TokenInfo, RevocationPlan, RevocationReceipt))


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on tokens, such as `Where("name", "nightly", condition="CONTAIN")`. The values are ORed."""

    field: str
    values: str | Sequence[str] = ()
    condition: str = "EQUAL"
    negated: bool = False

    def sent(self) -> dict[str, Any]:
        values = [self.values] if isinstance(self.values, str) else list(self.values)
        sent = {"field": self.field, "condition": self.condition, "negated": self.negated}
        return {**sent, "values": values} if values else sent


def create_token(
    actor: str,
    name: str,
    *,
    duration: Duration | timedelta | str,
    description: str | None = None,
    scopes: Iterable[str] | None = None,
    audience: Iterable[str] | None = None,
    networks: Iterable[str] | None = None,
    key: str | None = None,
) -> ApiRequest[NewToken]:
    """Make a token for an actor, who may be a service account. The duration is a named one, a timedelta, or ISO 8601
    such as P3D. Scopes, audience and networks (CIDR) limit it; None does not, and an empty list allows nothing.
    """
    document = f"""mutation ($input: GetAccessTokenInput!) {{
      createAccessToken(input: $input) {{ accessToken metadata {{ {_TOKEN} }} }} }}"""
    wanted = {
        "type": "SERVICE_ACCOUNT" if is_account(actor) else "PERSONAL",
        "actorUrn": actor,
        "name": name,
        "description": description,
        **_lifetime(duration),
        **_limits(scopes, audience, networks),
    }
    return ask(document, _created, {"input": wanted}, changes=True, key=key or _fresh_key())


def derive_token(
    name: str,
    *,
    duration: Duration | timedelta | str | None = None,
    description: str | None = None,
    scopes: Iterable[str] | None = None,
    audience: Iterable[str] | None = None,
    networks: Iterable[str] | None = None,
    key: str | None = None,
) -> ApiRequest[NewToken]:
    """Make a narrower and shorter token of the client's own, with which it dies. Without a duration it lives as long;
    limits that are not given are its parent's.
    """
    document = f"""mutation ($input: DeriveAccessTokenInput!) {{
      deriveAccessToken(input: $input) {{ accessToken metadata {{ {_TOKEN} }} }} }}"""
    lifetime = {} if duration is None else _lifetime(duration)
    wanted = {"name": name, "description": description, **lifetime, **_limits(scopes, audience, networks)}
    return ask(document, _created, {"input": wanted}, changes=True, key=key or _fresh_key())


def rotate_token(
    token_id: str,
    *,
    overlap: timedelta | str | None = None,
    grace: timedelta | str | None = None,
    key: str | None = None,
) -> ApiRequest[NewToken]:
    """Replace a token, by its id or urn, by a successor of the same name, actor and limits. The successor waits for
    its first use for the overlap (a day), and the old one lives on after that for the grace (5 minutes). See
    `rotate_file` for a token that is kept in a file.
    """
    document = f"""mutation ($id: String!, $overlap: String, $grace: String) {{
      rotateAccessToken(tokenId: $id, overlap: $overlap, grace: $grace) {{ accessToken metadata {{ {_TOKEN} }} }} }}"""
    wanted = {"id": token_id, "overlap": _span(overlap), "grace": _span(grace)}
    return ask(document, _created, wanted, changes=True, key=key or _fresh_key())


def _fresh_key() -> str:
    return secrets.token_hex(16)


def _lifetime(duration: Duration | timedelta | str) -> dict[str, str | None]:
    if isinstance(duration, Duration):
        return {"duration": duration.name}
    if isinstance(duration, str) and duration in Duration.__members__:
        return {"duration": duration}
    return {"durationIso": _span(duration)}


def _span(span: timedelta | str | None) -> str | None:
    return f"PT{int(span.total_seconds())}S" if isinstance(span, timedelta) else span


def _limits(
    scopes: Iterable[str] | None, audience: Iterable[str] | None, networks: Iterable[str] | None
) -> dict[str, list[str]]:
    given = {"scopes": scopes, "audience": audience, "allowedNetworks": networks}
    for name, words in given.items():
        if isinstance(words, str):
            raise ValueError(f"{name} must be a list, such as ['{words}'].")  # noqa: TRY004 - as of all arguments
    return {name: list(words) for name, words in given.items() if words is not None}


def _created(found: Json) -> NewToken:
    return NewToken(token=Secret(found["accessToken"]), metadata=record(TokenInfo, found["metadata"]))


def token_page(
    *where: Where,
    start: int = 0,
    count: int = 20,
    sort: str = "expiresAt",
    descending: bool = True,
) -> ApiRequest[ResultPage[TokenInfo]]:
    """One page of tokens and how many there are. Without a condition on one's own urn it needs Manage All."""
    document = f"""query ($input: ListAccessTokensInput) {{
      listAccessTokens(input: $input) {{ total tokens {{ {_TOKEN} }} }} }}"""
    wanted = {
        "start": start,
        "count": count,
        "filters": [condition.sent() for condition in where],
        "sort": {"field": sort, "order": "DESCENDING" if descending else "ASCENDING"},
    }
    return ask(document, lambda found: page_of(TokenInfo, found, "tokens"), {"input": wanted})


def tokens(
    *where: Where, sort: str = "expiresAt", descending: bool = True, page_size: int = PAGE_SIZE
) -> Paged[TokenInfo]:
    """All tokens that meet every condition, fetched page by page as they are asked for."""
    return Paged(
        lambda start, count: token_page(*where, start=start, count=count, sort=sort, descending=descending),
        lambda token: token.id,
        page_size,
    )


def get_token(token_id: str) -> ApiRequest[TokenInfo]:
    """A token's record by its id or urn, revoked ones too."""
    document = f"query ($id: String!) {{ getAccessToken(id: $id) {{ {_TOKEN} }} }}"
    return ask(document, lambda found: record(TokenInfo, found), {"id": token_id})


def find_token(token: str | Secret[str]) -> ApiRequest[TokenInfo]:
    """The record of a token that one holds in hand."""
    document = f"query ($token: String!) {{ getAccessTokenMetadata(token: $token) {{ {_TOKEN} }} }}"
    return ask(document, lambda found: record(TokenInfo, found), {"token": _raw(token)})


def verify_token() -> ApiRequest[Identity]:
    """Who the client's own token is to a gateway. This is a use of it, which a successor in a rotation may wait for.
    For one that is limited to another audience than Watchword it raises `Unauthorized`, reason `wrong_audience`.
    """
    return ApiRequest(_no_content, method="GET", path="/auth", bare=_identity)


def _no_content(answer: Any) -> Identity:
    raise ValueError("an answer where none was to be")


def _identity(headers: Json) -> Identity:
    return Identity(headers["x-auth-urn"], headers["x-auth-token-id"], tuple(headers["x-auth-scopes"].split()))


def revoke_token(token_id: str, *, cascade: bool = False) -> ApiRequest[None]:
    """End a token, by its id or urn, and those derived from it; with `cascade` also those that were minted with one of
    them. Once this returns, no instance accepts any.
    """
    document = "mutation ($id: String!, $cascade: Boolean) { revokeAccessToken(tokenId: $id, cascade: $cascade) }"
    return ask(document, done, {"id": token_id, "cascade": cascade}, changes=True)


def plan_revocation(
    *where: Where, ids: Iterable[str] | None = None, everything: bool = False, cascade: bool = False
) -> ApiRequest[RevocationPlan]:
    """What `revoke_tokens` would end, and whose; nothing is changed."""
    document = f"""mutation ($input: RevokeAccessTokensInput!) {{
      revokeAccessTokens(input: $input) {{ {_PLAN} }} }}"""
    wanted = {**_meant(where, ids, everything, cascade), "dryRun": True}
    return ask(document, lambda found: record(RevocationPlan, found), {"input": wanted})


def revoke_tokens(
    *where: Where,
    ids: Iterable[str] | None = None,
    everything: bool = False,
    cascade: bool = False,
    at_most: int | None = None,
) -> ApiRequest[RevocationReceipt]:
    """End all tokens that meet every condition, or that have one of these ids, at most 100,000 in one moment. What
    means every token there is needs `everything`. Anybody's but one's own need Manage All. With the count of a plan as
    `at_most`, none is ended when more are meant by now: that is a `Conflict`.
    """
    document = f"""mutation ($input: RevokeAccessTokensInput!) {{
      revokeAccessTokens(input: $input) {{ {_RECEIPT} }} }}"""
    wanted = {**_meant(where, ids, everything, cascade), "dryRun": False}
    if at_most is not None:
        wanted["atMost"] = at_most
    return ask(document, lambda found: record(RevocationReceipt, found), {"input": wanted}, changes=True)


def _meant(where: Sequence[Where], ids: Iterable[str] | None, everything: bool, cascade: bool) -> dict[str, Any]:
    if isinstance(ids, str):
        raise ValueError("ids must be a list of ids.")  # noqa: TRY004 - as of all arguments
    return {
        "ids": None if ids is None else list(ids),
        "filters": [condition.sent() for condition in where],
        "all": everything,
        "cascade": cascade,
    }


def surrender_token(token: str | Secret[str]) -> ApiRequest[None]:
    """End a token that one holds in hand, wherever it was found: that is enough, no credential is sent. What is none of
    the server's live tokens is left as it is, and nobody is told.
    """
    content = urlencode({"token": _raw(token)}).encode()
    # Not a change that must not be made twice: once ended, always ended.
    return ApiRequest(
        lambda _: None, path="/oauth2/revoke", content=content, media=FORM, public=True, bare=lambda _: None
    )


def jwks() -> ApiRequest[Json]:
    """The server's public keys, as a JSON Web Key Set. Needs no credential."""
    return ApiRequest(_key_set, method="GET", path="/.well-known/jwks.json", public=True)


def _key_set(answer: Json) -> Json:
    if not all(isinstance(key["kid"], str) for key in answer["keys"]):
        raise ValueError("a key without a name")
    return answer


def _raw(token: str | Secret[str]) -> str:
    return token.reveal() if isinstance(token, Secret) else token
