"""Tokens: create, derive, rotate, find, verify and revoke them."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlencode

from watchword.basics.names import is_account
from watchword.basics.scopes import covering, is_scope
from watchword.basics.secret import Secret
from watchword.basics.times import Duration
from watchword.client.records import GRAPHQL_NAME, Json, Record, to_millis
from watchword.client.requests import (
    PAGE_SIZE,
    ApiRequest,
    Listing,
    ResultPage,
    as_list,
    ask,
    ignore,
    iso,
    list_by_offset,
    lists,
    page,
    require_true,
    sends,
    word_lists,
)

T = TypeVar("T")
Lifetime = Duration | timedelta | str
DEVICE_CLIENT = "watchword-cli"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class TokenInfo(Record):
    """What the server stores about a token. It never stores the token itself."""

    id: str
    urn: str
    name: str
    description: str | None
    actor_urn: str
    owner_urn: str
    token_type: str
    status: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    scopes: tuple[str, ...] | None = None
    audience: tuple[str, ...] | None = None
    allowed_networks: tuple[str, ...] | None = None
    parent_id: str | None = None
    created_with: str | None = None
    replaces: str | None = None
    replaced_by: str | None = None
    replaced_at: datetime | None = None
    awaits_first_use: bool = False
    expires_at_once_used: datetime | None = None
    use_count: int = 0
    last_network: str | None = None
    effective_status: str = "ACTIVE"
    """Like `status`, but SUSPENDED instead of ACTIVE while the actor is suspended."""
    actor_name: str | None = None
    """The display name of the actor, if it has one."""
    owner_name: str | None = None


class DayCountInfo(Record):
    """A count on one UTC day, written YYYY-MM-DD."""

    day: str
    count: int


class TokenDetails(TokenInfo):
    """What the server stores about one token, with its uses on each of the last 14 days."""

    uses_by_day: tuple[DayCountInfo, ...] = ()
    networks: tuple[str, ...] = ()
    """The networks it was used from, the first one first."""


class NewToken(Record):
    """A token that was just issued, and its record. The server shows the token only this once."""

    token: Secret[str] = field(metadata={GRAPHQL_NAME: "accessToken"})
    metadata: TokenInfo


class DeviceLogin(Record):
    """A device authorization (RFC 8628) that waits for a person to approve it in a browser."""

    device_code: Secret[str]
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: float
    """Seconds until both codes expire."""
    interval: float
    """Seconds to wait between polls."""


class VerifiedToken(Record):
    """Whose token it is and which scopes it has now, as a gateway gets it."""

    urn: str
    token_id: str
    scopes: tuple[str, ...]

    def has_scope(self, scope: str) -> bool:
        """Whether the scopes name it or have a wildcard that covers it, such as orders:* for orders:read."""
        return is_scope(scope) and covering(self.scopes, scope) is not None


class ActorTokenCount(Record):
    """How many tokens of one actor a revocation affects, or an actor created."""

    actor_urn: str
    actor_name: str | None
    count: int


class OverviewInfo(Record):
    """Numbers of tokens, when they expire, and what happened on the last 30 days."""

    live: int
    expiring_7_days: int = field(metadata={GRAPHQL_NAME: "expiring7Days"})
    unused_90_days: int | None = field(metadata={GRAPHQL_NAME: "unused90Days"})
    """None until the server has read through a large store."""
    never_expiring: int
    suspended: int
    """Tokens of suspended actors. They are not live."""
    uses_by_day: tuple[DayCountInfo, ...]
    expiries_by_day: tuple[DayCountInfo, ...]
    """84 days from today."""
    denials_by_day: tuple[DayCountInfo, ...] | None
    """None without View Audit Log, as failed sign-ins."""
    failed_sign_ins_by_day: tuple[DayCountInfo, ...] | None
    owners: tuple[ActorTokenCount, ...]
    """Who created most of the live tokens."""


class RevocationPlan(Record):
    """How many tokens would be revoked, derived ones included, and whose: at most 100 actors, most tokens first."""

    count: int
    actors: tuple[ActorTokenCount, ...]


class RevocationReceipt(Record):
    """How many tokens were revoked, and when. No instance accepts any of them after `revoked_at`. The digest is the
    SHA-256 of their sorted ids, each followed by a line feed.
    """

    count: int
    digest: str
    revoked_at: datetime


class ImportStatusInfo(Record):
    """What came from DataHub, and how much of it is still in use."""

    tokens: int
    live: int
    never_expiring: int
    used_in_30_days: int
    last_expires_at: datetime | None
    last_changed_at: datetime | None
    has_salt: bool


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """A condition on tokens, such as `TokenFilter("name", "nightly", condition="CONTAIN")`. One of the values must
    match. For a time the value is a datetime.
    """

    field: str
    values: str | datetime | Sequence[str | datetime] = ()
    condition: str = "EQUAL"
    negated: bool = False

    def as_input(self) -> dict[str, Any]:
        """The condition as the API takes it."""
        given = [self.values] if isinstance(self.values, str | datetime) else self.values
        values = [str(to_millis("values", value)) if isinstance(value, datetime) else value for value in given]
        sent = {"field": self.field, "condition": self.condition, "negated": self.negated}
        return {**sent, "values": values} if values else sent


class TokenMethods:
    @sends
    def create_token(
        self,
        actor: str,
        name: str,
        *,
        duration: Lifetime,
        description: str | None = None,
        scopes: Iterable[str] | None = None,
        audience: Iterable[str] | None = None,
        networks: Iterable[str] | None = None,
        key: str | None = None,
    ) -> ApiRequest[NewToken]:
        """Create a token for a user or service account. `duration` is a timedelta, or text such as 90d, 12h, ONE_WEEK
        or P3D. `scopes`, `audience` and `networks` (CIDR) limit the token; None sets no limit, an empty list allows
        nothing. The same `key` returns the same token for a day.
        """
        wanted = {
            "type": "SERVICE_ACCOUNT" if is_account(actor) else "PERSONAL",
            "actorUrn": actor,
            "name": name,
            "description": description,
            **_lifetime(duration),
            **word_lists(scopes=scopes, audience=audience, networks=networks),
        }
        return _new_token("createAccessToken", {"input: GetAccessTokenInput!": wanted}, key)

    @sends
    def derive_token(
        self,
        name: str,
        *,
        duration: Lifetime | None = None,
        description: str | None = None,
        scopes: Iterable[str] | None = None,
        audience: Iterable[str] | None = None,
        networks: Iterable[str] | None = None,
        key: str | None = None,
    ) -> ApiRequest[NewToken]:
        """Derive a token from the client's token. It can do no more than its parent, and ends with it. Limits and
        duration that are not given are those of the parent.
        """
        lifetime = {} if duration is None else _lifetime(duration)
        limits = word_lists(scopes=scopes, audience=audience, networks=networks)
        wanted = {"name": name, "description": description, **lifetime, **limits}
        return _new_token("deriveAccessToken", {"input: DeriveAccessTokenInput!": wanted}, key)

    @sends
    def rotate_token(
        self,
        token_id: str,
        *,
        overlap: timedelta | str | None = None,
        grace: timedelta | str | None = None,
        key: str | None = None,
    ) -> ApiRequest[NewToken]:
        """Create the successor of a token, by id or urn, with the same name, actor and limits. It must be used within
        the overlap (default: a day). The old token expires after the grace period (default: 5 minutes) that follows the
        first use. To rotate a token in a file, use `rotate_file`.
        """
        variables = {
            "tokenId: String!": token_id,
            "overlap: String": iso("overlap", overlap),
            "grace: String": iso("grace", grace),
        }
        return _new_token("rotateAccessToken", variables, key)

    @sends
    def token_page(
        self, *filters: TokenFilter, start: int = 0, count: int = 20, sort: str = "expiresAt", descending: bool = True
    ) -> ApiRequest[ResultPage[TokenInfo]]:
        """Get one page of the tokens that meet all conditions, and their number. Tokens of other actors need Manage
        All Access Tokens.
        """
        return _token_page(filters, start, count, sort, descending)

    @lists
    def tokens(
        self, *filters: TokenFilter, sort: str = "expiresAt", descending: bool = True, page_size: int = PAGE_SIZE
    ) -> Listing[TokenInfo]:
        """List the tokens that meet all conditions."""

        def fetch(start: int, count: int) -> ApiRequest[ResultPage[TokenInfo]]:
            return _token_page(filters, start, count, sort, descending)

        return list_by_offset(fetch, lambda token: token.id, page_size)

    @sends
    def get_token(self, token_id: str) -> ApiRequest[TokenDetails]:
        """Get a token's record by id or urn, revoked or not."""
        return ask("getAccessToken", TokenDetails, {"id: String!": token_id}, arguments={"id": "token_id"})

    @sends
    def find_token(self, token: str | Secret[str]) -> ApiRequest[TokenDetails]:
        """Get the record of a token that the caller has."""
        return ask("getAccessTokenMetadata", TokenDetails, {"token: String!": _reveal(token)})

    @sends
    def get_overview(self, *, all_actors: bool = False) -> ApiRequest[OverviewInfo]:
        """Get the numbers of the client's own tokens; with `all_actors` of all tokens, for Manage All Access Tokens."""
        return ask("overview", OverviewInfo, {"input: OverviewInput": {"all": all_actors}})

    @sends
    def verify_token(self) -> ApiRequest[VerifiedToken]:
        """Verify the client's token as a gateway does. This is a use of the token: it starts the grace period of a
        rotation. A token for another audience than Watchword raises `Unauthorized` with reason `wrong_audience`.
        """
        return ApiRequest(identity, "/auth", read_headers=identity)

    @sends
    def update_token(
        self, token_id: str, *, name: str | None = None, description: str | None = None
    ) -> ApiRequest[TokenInfo]:
        """Change the name or description of a token, by id or urn. One that is not given stays; an empty description is
        removed.
        """
        variables = {
            "tokenId: String!": token_id,
            "input: UpdateAccessTokenInput!": {"name": name, "description": description},
        }
        return ask("updateAccessToken", TokenInfo, variables, mutation=True)

    @sends
    def revoke_token(self, token_id: str, *, cascade: bool = False) -> ApiRequest[None]:
        """Revoke a token, by id or urn, and those derived from it; with `cascade` also those created with one of them.
        When this returns, no instance accepts any of them.
        """
        variables = {"tokenId: String!": token_id, "cascade: Boolean": cascade}
        return ask("revokeAccessToken", require_true, variables, mutation=True)

    @sends
    def plan_revocation(
        self, *filters: TokenFilter, ids: Iterable[str] | None = None, all_actors: bool = False, cascade: bool = False
    ) -> ApiRequest[RevocationPlan]:
        """Count what `revoke_tokens` would revoke, by actor. Changes nothing."""
        wanted = {**_selected_tokens(filters, ids, all_actors, cascade), "dryRun": True}
        variables = {"input: RevokeAccessTokensInput!": wanted}
        return ask("revokeAccessTokens", RevocationPlan, variables, mutation=True, changes=False)

    @sends
    def revoke_tokens(
        self,
        *filters: TokenFilter,
        ids: Iterable[str] | None = None,
        all_actors: bool = False,
        cascade: bool = False,
        at_most: int | None = None,
    ) -> ApiRequest[RevocationReceipt]:
        """Revoke all tokens that meet every condition, or that have one of the ids, at most 100,000 in one step. To
        revoke all tokens there are, set `all_actors`. Tokens of other actors need Manage All Access Tokens. If more
        than `at_most` tokens match, none is revoked and `Conflict` is raised.
        """
        wanted = {**_selected_tokens(filters, ids, all_actors, cascade), "dryRun": False}
        if at_most is not None:
            wanted["atMost"] = at_most
        variables = {"input: RevokeAccessTokensInput!": wanted}
        return ask("revokeAccessTokens", RevocationReceipt, variables, mutation=True)

    @sends
    def revoke_by_possession(self, token: str | Secret[str], *, by_scan: bool = False) -> ApiRequest[None]:
        """Revoke a token that was found somewhere. Sends no credential. Succeeds too if the token is not one of the
        server's, or is revoked already. `by_scan`: a scan found it; the server tells its owner.
        """
        form = {"token": _reveal(token)} | ({"found_by": "scan"} if by_scan else {})
        # Retried like a read: revoking twice does no harm.
        return _form("/oauth2/revoke", form, ignore, read_headers=ignore)

    @sends
    def start_device_login(
        self, client_id: str = DEVICE_CLIENT, *, host: str | None = None, scopes: Iterable[str] = ()
    ) -> ApiRequest[DeviceLogin]:
        """Start device authorization (RFC 8628): show the person `user_code` and `verification_uri_complete`, then call
        `poll_device_login` every `interval` seconds. `host` is a label for the person; `scopes` limit the token. Sends
        no credential.
        """

        def read(found: Json) -> DeviceLogin:
            return DeviceLogin(
                device_code=Secret(str(found["device_code"])),
                user_code=str(found["user_code"]),
                verification_uri=str(found["verification_uri"]),
                verification_uri_complete=str(found["verification_uri_complete"]),
                expires_in=float(found["expires_in"]),
                interval=float(found["interval"]),
            )

        form = {"client_id": client_id, "host": host or "", "scope": " ".join(as_list("scopes", scopes))}
        return _form("/oauth2/device_authorization", form, read)

    @sends
    def poll_device_login(
        self, device_code: str | Secret[str], client_id: str = DEVICE_CLIENT
    ) -> ApiRequest[Secret[str]]:
        """Get the token of an approved device authorization, once. `BadRequest` with the reason
        `authorization_pending` or `slow_down` (wait five seconds longer from now on) means: poll again. Other reasons
        are final: `access_denied`, `expired_token`, `invalid_grant`. Sends no credential.
        """
        form = {"grant_type": DEVICE_GRANT, "device_code": _reveal(device_code), "client_id": client_id}
        return _form("/oauth2/token", form, lambda found: Secret(str(found["access_token"])), changes=True)

    @sends
    def jwks(self) -> ApiRequest[Json]:
        """Get the server's public keys, as a JSON Web Key Set. Needs no credential."""

        def read(answer: Json) -> Json:
            if not all(isinstance(key["kid"], str) for key in answer["keys"]):
                raise ValueError("a key without an id")
            return answer

        return ApiRequest(read, "/.well-known/jwks.json", public=True)

    @sends
    def get_import_status(self) -> ApiRequest[ImportStatusInfo]:
        """Get what came from DataHub, and how much of it is still in use. Needs Manage All Access Tokens."""
        return ask("importStatus", ImportStatusInfo)


def identity(headers: Any) -> VerifiedToken:
    """Read the headers with which the server confirms a token."""
    return VerifiedToken(headers["x-auth-urn"], headers["x-auth-token-id"], tuple(headers["x-auth-scopes"].split()))


def _form(path: str, fields: Mapping[str, str], read: Callable[[Any], T], **how: Any) -> ApiRequest[T]:
    """A request of the OAuth addresses. It needs no credential but what is in the form."""
    media = "application/x-www-form-urlencoded"
    return ApiRequest(read, path, urlencode(fields).encode(), public=True, media=media, **how)


def _new_token(call: str, variables: Json, key: str | None) -> ApiRequest[NewToken]:
    """Under an Idempotency-Key, so that it may be retried: the server answers with the same token again."""
    return ask(call, NewToken, variables, mutation=True, key=key or secrets.token_hex(16))


def _lifetime(duration: Lifetime) -> dict[str, str | None]:
    if isinstance(duration, Duration):
        return {"duration": duration.name}
    if isinstance(duration, str) and duration.upper() in Duration.__members__:
        return {"duration": duration.upper()}
    return {"durationIso": iso("duration", duration)}


def _token_page(
    filters: Sequence[TokenFilter], start: int, count: int, sort: str, descending: bool
) -> ApiRequest[ResultPage[TokenInfo]]:
    wanted = {
        "start": start,
        "count": count,
        "filters": [condition.as_input() for condition in filters],
        "sort": {"field": sort, "order": "DESCENDING" if descending else "ASCENDING"},
    }
    return page("listAccessTokens", "tokens", TokenInfo, "ListAccessTokensInput", wanted)


def _selected_tokens(
    filters: Sequence[TokenFilter], ids: Iterable[str] | None, all_actors: bool, cascade: bool
) -> dict[str, Any]:
    return {
        "ids": None if ids is None else as_list("ids", ids),
        "filters": [condition.as_input() for condition in filters],
        "all": all_actors,
        "cascade": cascade,
    }


def _reveal(token: str | Secret[str]) -> str:
    return token.reveal() if isinstance(token, Secret) else token
