"""Everything that can be asked of a server: the methods of `Client` and `AsyncClient`, each written once.

A method here makes a request or a listing and does no input or output. Its decorator lets a client send it: `Client`
returns the result, or an iterator over a list; `AsyncClient` returns an awaitable, or an asynchronous iterator.
"""

import inspect
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, cast, overload
from urllib.parse import urlencode

from watchword.client.errors import ARGUMENTS
from watchword.client.records import (
    ActorInfo,
    ActorSummary,
    AppliedPolicies,
    DeclaredAccountInfo,
    DeclaredGroupInfo,
    DeclaredPolicyInfo,
    DeviceLogin,
    EventAction,
    EventInfo,
    GroupInfo,
    HeldSeries,
    ImportStatusInfo,
    IndexInfo,
    Json,
    MailPreference,
    NewToken,
    NewWebhook,
    OffboardingReport,
    OperationInfo,
    OverviewInfo,
    PolicyActors,
    PolicyInfo,
    PrivilegeDescription,
    PrivilegeExplanation,
    PrivilegeHolder,
    R,
    ResourceInfo,
    RetentionHold,
    RetentionRuleInfo,
    RetentionRunInfo,
    RevocationPlan,
    RevocationReceipt,
    SeriesPlanInfo,
    SeriesSize,
    ServerInfo,
    ServiceAccountInfo,
    SessionInfo,
    TaskInfo,
    TimeseriesHistogram,
    TokenDetails,
    TokenInfo,
    TruncationPlan,
    UserInfo,
    VerifiedToken,
    WebhookAttempt,
    WebhookDelivery,
    WebhookInfo,
    WebhookReplay,
    record,
    selection,
    to_millis,
)
from watchword.domain.lifetimes import SPAN_FORMS, Duration, parse_span, written_iso
from watchword.domain.names import is_account
from watchword.domain.secret import Secret

if TYPE_CHECKING:
    from watchword.client.http_clients import AsyncClient, Client

A = ParamSpec("A")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Lifetime = Duration | timedelta | str
GRAPHQL_PATH = "/api/graphql"
DEVICE_CLIENT = "watchword-cli"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
PAGE_SIZE = 1_000
_PAGE_SIZE = {"count": "page_size"}
_FIELDS = {argument: graphql for graphql, argument in ARGUMENTS.items()}
_RULE_DURATIONS = frozenset({"keep", "removeAfter"})
_OPERATION_ID, _WEBHOOK_ID = {"id": "operation_id"}, {"id": "webhook_id"}
PLAN_PAGE_SIZE = 10  # the most series that one request plans
MAX_STEPS_BACK = 100


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[T]):
    """One request and how to read its answer. The content may hold a secret, so `repr` hides it."""

    read: Callable[[Any], T]
    path: str = GRAPHQL_PATH
    content: bytes | None = field(default=None, repr=False)
    """The body of a POST; None for a GET."""
    changes: bool = False
    public: bool = False
    """No credential is needed or sent."""
    key: str | None = None
    """The Idempotency-Key."""
    media: str = "application/json"
    read_headers: Callable[[Mapping[str, str]], T] | None = None
    """Reads an answer without a body; None if the answer must have one."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Python arguments by GraphQL field, where the name of the argument depends on the method."""


class Step(NamedTuple, Generic[T]):
    """The new items of a list, and the request for its next page; None at the end."""

    items: Sequence[T]
    request: ApiRequest[Any] | None
    pause: float = 0.0
    """Seconds to wait before the request."""


Listing = Generator[Step[T], Any, None]
"""A list that takes several requests. A client sends each request, and the page back into the generator."""


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """One page of a list, and the length of the whole list."""

    items: tuple[T, ...]
    total: int


def list_by_offset(
    fetch: Callable[[int, int], ApiRequest[ResultPage[T]]], key: Callable[[T], str], page_size: int
) -> Listing[T]:
    """List by offset while others may change the list. Items that stay in the list are given exactly once.

    Each page starts with the last item of the page before. If it does not, items before the offset were removed, and
    the listing steps back. Items given before are skipped. Every order stays the same meanwhile, except the order by
    last use. After 100 steps back the listing continues without this check, so that it ends.

    `fetch` makes the request for (start, count); `key` identifies an item.
    """
    if page_size < 2:
        raise ValueError("page_size must be 2 or more.")
    start, step, steps_back = 0, page_size, 0
    given: set[str] = set()
    new: list[T] = []
    is_last = False
    while not is_last:
        request = fetch(start, page_size)
        page: ResultPage[T] = yield Step(new, replace(request, arguments={**_PAGE_SIZE, **request.arguments}))
        may_have_missed = start > 0 and not (page.items and key(page.items[0]) in given)
        if may_have_missed and steps_back < MAX_STEPS_BACK:
            new, start = [], max(0, start - step)
            steps_back, step = steps_back + 1, step * 2
            continue
        new = [item for item in page.items if key(item) not in given]
        given.update(map(key, new))
        start, step = start + len(page.items) - 1, page_size
        is_last = len(page.items) < page_size
    yield Step(new, None)


def _list_by_cursor(
    call: str, items: str, kind: type[R], input_type: str, wanted: Json, names: Mapping[str, str] | None = None
) -> Listing[R]:
    """Each answer has a cursor to the next page."""

    def read(found: Json) -> tuple[list[R], str | None]:
        return [record(kind, item) for item in found[items]], found["cursor"]

    page: list[R] = []
    cursor = None
    while True:
        variables = {f"input: {input_type}": {**wanted, "cursor": cursor}}
        selected = f"cursor {items} {{ {selection(kind)} }}"
        request = ask(call, read, variables, selected=selected, arguments={**_PAGE_SIZE, **(names or {})})
        page, cursor = yield Step(page, request)
        if cursor is None:
            break
    yield Step(page, None)


def ask(
    call: str,
    kind: Callable[..., T],
    variables: Mapping[str, Any] | None = None,
    *,
    selected: str = "",
    part: str | None = None,
    mutation: bool = False,
    changes: bool | None = None,
    key: str | None = None,
    arguments: Mapping[str, str] | None = None,
    nullable: bool = False,
) -> ApiRequest[T]:
    """A GraphQL request for one field, such as `getPolicy`. `kind` is a record, or reads the value of the field from
    JSON, or that of its `part`. The keys of `variables` name an argument and its type, such as `urn: String!`. A
    mutation `changes` something unless that is False.
    """
    given = {name.partition(":")[0]: value for name, value in (variables or {}).items()}
    declared = "(" + ", ".join(f"${name}" for name in variables) + ")" if variables else ""
    passed = "(" + ", ".join(f"{name}: ${name}" for name in given) + ")" if given else ""
    read: Callable[[Any], T] = kind
    if is_dataclass(kind):
        record_type = cast("Any", kind)
        read, selected = partial(record, record_type), selection(record_type)
    if part is not None:
        selected = f"{part} {{ {selected} }}" if selected else part
    body = f"{{ {selected} }}" if selected else ""
    document = f"{'mutation' if mutation else 'query'} {declared} {{ {call}{passed} {body} }}"

    def read_data(answer: Json) -> T:
        (value,) = answer["data"].values()
        if value is None and nullable:
            return cast("T", None)
        if value is None:
            raise TypeError("null without an error")
        return read(value if part is None else value[part])

    # Not escaped: escapes are longer, and the server limits them. The server rejects lone surrogates.
    text = json.dumps({"query": document, "variables": given}, ensure_ascii=False)
    return ApiRequest(
        read_data,
        content=text.encode("utf-8", "surrogatepass"),
        changes=mutation if changes is None else changes,
        key=key,
        arguments=arguments or {},
    )


class _Request(Protocol[A, T_co]):
    """The type of a method that sends one request."""

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[A, T_co]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[A, Coroutine[Any, Any, T_co]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, A], Any]: ...


class _Listing(Protocol[A, T_co]):
    """The type of a method that goes through a list."""

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[A, Iterator[T_co]]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[A, AsyncIterator[T_co]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, A], Any]: ...


def _sends(make: Callable[Concatenate[Any, A], ApiRequest[T]]) -> _Request[A, T]:
    def method(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> Any:
        return self._send(make(self, *args, **kwargs))

    return cast("_Request[A, T]", _described(method, make))


def _lists(make: Callable[Concatenate[Any, A], Listing[T]]) -> _Listing[A, T]:
    def method(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> Any:
        listing = make(self, *args, **kwargs)
        return self._list(listing, next(listing))  # the first step checks the arguments

    return cast("_Listing[A, T]", _described(method, make))


def _described(method: Any, make: Callable[..., Any]) -> Any:
    """Give a method the name, docstring and parameters of the function that it wraps."""
    method.__name__, method.__qualname__, method.__doc__ = make.__name__, make.__qualname__, make.__doc__
    method.__signature__ = inspect.signature(make).replace(return_annotation=inspect.Signature.empty)
    return method


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


class Api:
    """The methods that both clients share."""

    @_sends
    def get_server_info(self) -> ApiRequest[ServerInfo]:
        """Get the server's version and what it can do. Needs no credential."""
        return ApiRequest(lambda answer: record(ServerInfo, answer["watchword"]), "/config", public=True)

    @_sends
    def me(self) -> ApiRequest[UserInfo]:
        """Get the actor that this client acts as."""
        return ask("me", UserInfo, part="corpUser")

    @_sends
    def granted_privileges(self, actor: str) -> ApiRequest[tuple[str, ...]]:
        """Get an actor's privileges. Other actors than the caller need View Policies."""
        variables = {"input: GetGrantedPrivilegesInput!": {"actorUrn": actor}}
        return ask("getGrantedPrivileges", tuple, variables, part="privileges")

    @_sends
    def granted_scopes(self, actor: str) -> ApiRequest[tuple[str, ...]]:
        """Get the scopes of other services that policies grant an actor. Other actors than the caller need View
        Policies.
        """
        variables = {"input: GetGrantedPrivilegesInput!": {"actorUrn": actor}}
        return ask("getGrantedPrivileges", tuple, variables, part="scopes")

    @_sends
    def explain_privilege(self, actor: str, privilege: str) -> ApiRequest[PrivilegeExplanation]:
        """Explain whether an actor has a privilege or a scope, and by which policies."""
        variables = {"input: ExplainPrivilegeInput!": {"actorUrn": actor, "privilege": privilege}}
        return ask("explainPrivilege", PrivilegeExplanation, variables)

    @_sends
    def privileges(self) -> ApiRequest[tuple[PrivilegeDescription, ...]]:
        """Get all privileges and what each allows."""
        return _ask_tuple("listPrivileges", PrivilegeDescription)

    @_sends
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
            **_word_lists(scopes=scopes, audience=audience, networks=networks),
        }
        return _new_token("createAccessToken", {"input: GetAccessTokenInput!": wanted}, key)

    @_sends
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
        limits = _word_lists(scopes=scopes, audience=audience, networks=networks)
        wanted = {"name": name, "description": description, **lifetime, **limits}
        return _new_token("deriveAccessToken", {"input: DeriveAccessTokenInput!": wanted}, key)

    @_sends
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
            "overlap: String": _iso("overlap", overlap),
            "grace: String": _iso("grace", grace),
        }
        return _new_token("rotateAccessToken", variables, key)

    @_sends
    def token_page(
        self, *filters: TokenFilter, start: int = 0, count: int = 20, sort: str = "expiresAt", descending: bool = True
    ) -> ApiRequest[ResultPage[TokenInfo]]:
        """Get one page of the tokens that meet all conditions, and their number. Tokens of other actors need Manage
        All Access Tokens.
        """
        return _token_page(filters, start, count, sort, descending)

    @_lists
    def tokens(
        self, *filters: TokenFilter, sort: str = "expiresAt", descending: bool = True, page_size: int = PAGE_SIZE
    ) -> Listing[TokenInfo]:
        """List the tokens that meet all conditions."""

        def fetch(start: int, count: int) -> ApiRequest[ResultPage[TokenInfo]]:
            return _token_page(filters, start, count, sort, descending)

        return list_by_offset(fetch, lambda token: token.id, page_size)

    @_sends
    def get_token(self, token_id: str) -> ApiRequest[TokenDetails]:
        """Get a token's record by id or urn, revoked or not."""
        return ask("getAccessToken", TokenDetails, {"id: String!": token_id}, arguments={"id": "token_id"})

    @_sends
    def find_token(self, token: str | Secret[str]) -> ApiRequest[TokenDetails]:
        """Get the record of a token that the caller has."""
        return ask("getAccessTokenMetadata", TokenDetails, {"token: String!": _reveal(token)})

    @_sends
    def get_overview(self, *, all_actors: bool = False) -> ApiRequest[OverviewInfo]:
        """Get the numbers of the client's own tokens; with `all_actors` of all tokens, for Manage All Access Tokens."""
        return ask("overview", OverviewInfo, {"input: OverviewInput": {"all": all_actors}})

    @_sends
    def verify_token(self) -> ApiRequest[VerifiedToken]:
        """Verify the client's token as a gateway does. This is a use of the token: it starts the grace period of a
        rotation. A token for another audience than Watchword raises `Unauthorized` with reason `wrong_audience`.
        """
        return ApiRequest(identity, "/auth", read_headers=identity)

    @_sends
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

    @_sends
    def revoke_token(self, token_id: str, *, cascade: bool = False) -> ApiRequest[None]:
        """Revoke a token, by id or urn, and those derived from it; with `cascade` also those created with one of them.
        When this returns, no instance accepts any of them.
        """
        variables = {"tokenId: String!": token_id, "cascade: Boolean": cascade}
        return ask("revokeAccessToken", _require_true, variables, mutation=True)

    @_sends
    def plan_revocation(
        self, *filters: TokenFilter, ids: Iterable[str] | None = None, all_actors: bool = False, cascade: bool = False
    ) -> ApiRequest[RevocationPlan]:
        """Count what `revoke_tokens` would revoke, by actor. Changes nothing."""
        wanted = {**_selected_tokens(filters, ids, all_actors, cascade), "dryRun": True}
        variables = {"input: RevokeAccessTokensInput!": wanted}
        return ask("revokeAccessTokens", RevocationPlan, variables, mutation=True, changes=False)

    @_sends
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

    @_sends
    def revoke_by_possession(self, token: str | Secret[str], *, by_scan: bool = False) -> ApiRequest[None]:
        """Revoke a token that was found somewhere. Sends no credential. Succeeds too if the token is not one of the
        server's, or is revoked already. `by_scan`: a scan found it; the server tells its owner.
        """
        form = {"token": _reveal(token)} | ({"found_by": "scan"} if by_scan else {})
        # Retried like a read: revoking twice does no harm.
        return _form("/oauth2/revoke", form, _ignore, read_headers=_ignore)

    @_sends
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

    @_sends
    def poll_device_login(
        self, device_code: str | Secret[str], client_id: str = DEVICE_CLIENT
    ) -> ApiRequest[Secret[str]]:
        """Get the token of an approved device authorization, once. `BadRequest` with the reason
        `authorization_pending` or `slow_down` (wait five seconds longer from now on) means: poll again. Other reasons
        are final: `access_denied`, `expired_token`, `invalid_grant`. Sends no credential.
        """
        form = {"grant_type": DEVICE_GRANT, "device_code": _reveal(device_code), "client_id": client_id}
        return _form("/oauth2/token", form, lambda found: Secret(str(found["access_token"])), changes=True)

    @_sends
    def jwks(self) -> ApiRequest[Json]:
        """Get the server's public keys, as a JSON Web Key Set. Needs no credential."""

        def read(answer: Json) -> Json:
            if not all(isinstance(key["kid"], str) for key in answer["keys"]):
                raise ValueError("a key without an id")
            return answer

        return ApiRequest(read, "/.well-known/jwks.json", public=True)

    @_sends
    def create_service_account(
        self,
        display_name: str,
        *,
        account_id: str | None = None,
        description: str | None = None,
    ) -> ApiRequest[ServiceAccountInfo]:
        """Create a service account, whose urn ends with `account_id` if that is given. `create_token` creates tokens
        for its urn. Needs Manage Service Accounts.
        """
        wanted = {"id": account_id, "displayName": display_name, "description": description}
        variables = {"input: CreateServiceAccountInput!": wanted}
        return ask("createServiceAccount", ServiceAccountInfo, variables, mutation=True, arguments={"id": "account_id"})

    @_lists
    def service_accounts(self, *, query: str | None = None, page_size: int = PAGE_SIZE) -> Listing[ServiceAccountInfo]:
        """List service accounts, all or those with `query` in their name or urn."""
        listed = ("listServiceAccounts", "serviceAccounts", ServiceAccountInfo, "ListServiceAccountsInput")
        return _list_records(*listed, page_size, query=query)

    @_sends
    def get_service_account(self, urn: str) -> ApiRequest[ServiceAccountInfo]:
        """Get a service account."""
        return ask("getServiceAccount", ServiceAccountInfo, {"urn: String!": urn})

    @_sends
    def delete_service_account(self, urn: str) -> ApiRequest[None]:
        """Delete a service account and revoke its tokens. Its urn is never used again."""
        return ask("deleteServiceAccount", _require_true, {"urn: String!": urn}, mutation=True)

    @_lists
    def policies(self, *, query: str | None = None, page_size: int = PAGE_SIZE) -> Listing[PolicyInfo]:
        """List policies, all or those with `query` in their name or description."""
        return _list_records("listPolicies", "policies", PolicyInfo, "ListPoliciesInput!", page_size, query=query)

    @_lists
    def holders(self, privilege: str, *, page_size: int = PAGE_SIZE) -> Listing[PrivilegeHolder]:
        """List who holds a privilege or scope, once for each way: all users first, then actors by urn."""
        listed = ("listPrivilegeHolders", "holders", PrivilegeHolder, "ListPrivilegeHoldersInput!")
        return _list_records(*listed, page_size, key=("actor_urn", "policy_urn", "group_urn"), privilege=privilege)

    @_sends
    def get_policy(self, urn: str) -> ApiRequest[PolicyInfo]:
        """Get a policy."""
        return ask("getPolicy", PolicyInfo, {"urn: String!": urn})

    @_sends
    def create_policy(
        self,
        name: str,
        privileges: Iterable[str],
        actors: PolicyActors,
        *,
        scopes: Iterable[str] = (),
        description: str | None = None,
        state: str = "ACTIVE",
    ) -> ApiRequest[str]:
        """Create a policy and return its urn. It grants privileges here and scopes of other services."""
        wanted = _policy_input(name, privileges, scopes, actors, description, state)
        variables = {"input: PolicyUpdateInput!": wanted}
        return ask("createPolicy", str, variables, mutation=True)

    @_sends
    def update_policy(
        self,
        urn: str,
        name: str,
        privileges: Iterable[str],
        actors: PolicyActors,
        *,
        scopes: Iterable[str] = (),
        description: str | None = None,
        state: str = "ACTIVE",
        revision: str | None = None,
    ) -> ApiRequest[str]:
        """Replace a policy and return its urn. With the revision that was read, only if it has not changed since."""
        wanted = _policy_input(name, privileges, scopes, actors, description, state)
        variables = {"urn: String!": urn, "input: PolicyUpdateInput!": wanted, "revision: String": revision}
        return ask("updatePolicy", str, variables, mutation=True)

    @_sends
    def delete_policy(self, urn: str) -> ApiRequest[None]:
        """Delete a policy."""
        return ask("deletePolicy", _ignore, {"urn: String!": urn}, mutation=True)

    @_sends
    def apply_policies(
        self,
        declared: Iterable[DeclaredPolicyInfo] = (),
        *,
        groups: Iterable[DeclaredGroupInfo] = (),
        accounts: Iterable[DeclaredAccountInfo] = (),
        retention: Iterable[Json] = (),
        webhooks: Iterable[Json] = (),
        resources: Iterable[Json] = (),
        set_name: str = "default",
        prune: bool = False,
        dry_run: bool = False,
    ) -> ApiRequest[AppliedPolicies]:
        """Create or update the policies, groups, service accounts, retention rules, webhooks and resources of a set in
        one transaction; rules, webhooks and resources are mappings with the keys of a policy file. `prune` deletes
        what the set has and is not declared, but no accounts. A dry run changes nothing and returns what would change.
        """
        policies = [_declared_input(policy) for policy in declared]
        others = {"groups": [asdict(one) for one in groups], "accounts": [asdict(one) for one in accounts]}
        others |= {"retention": [_rule_input(one) for one in retention], "webhooks": [dict(one) for one in webhooks]}
        others |= {"resources": [dict(one) for one in resources]}
        wanted = {"policies": policies, **others, "set": set_name, "prune": prune, "dryRun": dry_run}
        variables = {"input: ApplyPoliciesInput!": wanted}
        names = {"set": "set_name"}
        return ask("applyPolicies", AppliedPolicies, variables, mutation=True, changes=not dry_run, arguments=names)

    @_sends
    def resources(self) -> ApiRequest[tuple[ResourceInfo, ...]]:
        """List the resources that policy files declare."""
        return ask("listResources", _resources, selected=selection(ResourceInfo))

    @_lists
    def groups(self, *, page_size: int = PAGE_SIZE) -> Listing[GroupInfo]:
        """List groups."""
        return _list_records("listGroups", "groups", GroupInfo, "ListGroupsInput!", page_size)

    @_sends
    def get_group(self, urn: str) -> ApiRequest[GroupInfo]:
        """Get a group."""
        return ask("getGroup", GroupInfo, {"urn: String!": urn})

    @_sends
    def create_group(
        self,
        name: str,
        *,
        group_id: str | None = None,
        description: str | None = None,
    ) -> ApiRequest[str]:
        """Create a group and return its urn, which ends with `group_id` if that is given."""
        variables = {"input: CreateGroupInput!": {"id": group_id, "name": name, "description": description}}
        return ask("createGroup", str, variables, mutation=True, arguments={"id": "group_id"})

    @_sends
    def delete_group(self, urn: str) -> ApiRequest[None]:
        """Delete a group and its memberships."""
        return ask("removeGroup", _require_true, {"urn: String!": urn}, mutation=True)

    @_lists
    def group_members(self, urn: str, *, page_size: int = PAGE_SIZE) -> Listing[UserInfo]:
        """List the members of a group."""
        listed = ("listGroupMembers", "members", UserInfo, "ListGroupMembersInput!")
        return _list_records(*listed, page_size, names={"groupUrn": "urn"}, groupUrn=urn)

    @_sends
    def add_members(self, group: str, users: Iterable[str]) -> ApiRequest[None]:
        """Add users to a group."""
        return _change_members("addGroupMembers", group, users)

    @_sends
    def remove_members(self, group: str, users: Iterable[str]) -> ApiRequest[None]:
        """Remove users from a group."""
        return _change_members("removeGroupMembers", group, users)

    @_lists
    def actors(
        self, *, prefix: str = "", query: str = "", only_suspended: bool = False, page_size: int = PAGE_SIZE
    ) -> Listing[ActorSummary]:
        """List the known actors by urn, all or those whose urn or user name starts with `prefix`, and whose urn, name
        or e-mail address contains `query`.
        """
        wanted = {"prefix": prefix, "query": query, "onlySuspended": only_suspended, "count": page_size}
        return _list_by_cursor("listActors", "actors", ActorSummary, "ListActorsInput", wanted)

    @_sends
    def get_actor(self, urn: str) -> ApiRequest[ActorInfo]:
        """Get an actor's name and status."""
        return ask("getActor", ActorInfo, {"urn: String!": urn})

    @_sends
    def set_actor(self, urn: str, *, display_name: str | None = None, email: str | None = None) -> ApiRequest[None]:
        """Set the display name and e-mail address of an actor. One that is not given stays; an empty one is removed.
        Needs Manage Policies.
        """
        given = {"displayName": display_name, "email": email}
        wanted = {name: value or None for name, value in given.items() if value is not None}
        return ask("setActor", _ignore, {"input: SetActorInput!": {"urn": urn, **wanted}}, mutation=True)

    @_sends
    def link_actor(self, urn: str, subject: str | None, *, issuer: str | None = None) -> ApiRequest[None]:
        """Link an actor to a person of the identity provider, by the person's `sub`; None removes the link."""
        given = {"actorUrn": urn, "subject": subject, "issuer": issuer}
        names = {"actorUrn": "urn"}
        return ask("linkActor", _require_true, {"input: LinkActorInput!": given}, mutation=True, arguments=names)

    @_lists
    def sessions(
        self, actor: str | None = None, *, all_actors: bool = False, page_size: int = PAGE_SIZE
    ) -> Listing[SessionInfo]:
        """List the console sessions of an actor, or of all actors; without either, of the caller."""
        listed = ("listSessions", "sessions", SessionInfo, "ListSessionsInput")
        return _list_records(*listed, page_size, key=("id",), actorUrn=actor, all=all_actors)

    @_sends
    def end_session(self, session_id: str) -> ApiRequest[None]:
        """End a console session."""
        variables = {"id: String!": session_id}
        return ask("endSession", _require_true, variables, mutation=True, arguments={"id": "session_id"})

    @_sends
    def get_import_status(self) -> ApiRequest[ImportStatusInfo]:
        """Get what came from DataHub, and how much of it is still in use. Needs Manage All Access Tokens."""
        return ask("importStatus", ImportStatusInfo)

    @_sends
    def mail_preferences(self) -> ApiRequest[tuple[MailPreference, ...]]:
        """Get the kinds of mail, and which of them the caller wants."""
        return _ask_tuple("mailPreferences", MailPreference)

    @_sends
    def set_mail_preferences(self, off: Iterable[str]) -> ApiRequest[None]:
        """Get every kind of mail but these."""
        return ask(
            "setMailPreferences", _ignore, {"off: [String!]!": as_list("off", off)}, selected="kind", mutation=True
        )

    @_sends
    def suspend_actor(self, urn: str) -> ApiRequest[None]:
        """Suspend an actor: the server rejects its requests and all its tokens."""
        return _set_status(urn, "SUSPENDED")

    @_sends
    def resume_actor(self, urn: str) -> ApiRequest[None]:
        """End the suspension of an actor."""
        return _set_status(urn, "ACTIVE")

    @_sends
    def offboard_actor(
        self, urn: str, *, dry_run: bool = True, revoke_tokens_for_others: bool = False
    ) -> ApiRequest[OffboardingReport]:
        """Suspend an actor, revoke its tokens, end its sessions and remove it from its groups. A dry run, the default,
        only reports what there is. `revoke_tokens_for_others` also revokes tokens that the actor created for others.
        """
        variables = {
            "input: OffboardActorInput!": {
                "urn": urn,
                "dryRun": dry_run,
                "revokeTokensForOthers": revoke_tokens_for_others,
            }
        }
        return ask("offboardActor", OffboardingReport, variables, mutation=True, changes=not dry_run)

    @_lists
    def events(
        self,
        *,
        actors: Iterable[str] = (),
        actions: Iterable[str] = (),
        targets: Iterable[str] = (),
        about: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = PAGE_SIZE,
    ) -> Listing[EventInfo]:
        """List the events of the audit log, newest first, at or after `since` and before `until`. `about` selects
        events that target or name an actor, or target one of its tokens. Needs View Audit Log.
        """
        wanted: dict[str, Any] = {"count": page_size}
        lists = _word_lists(actions=actions, targets=targets, actors=actors, about=about)
        wanted |= {name: words for name, words in lists.items() if words}
        times = {"since": since, "until": until}
        wanted |= {name: to_millis(name, when) for name, when in times.items() if when is not None}
        return _list_by_cursor("listEvents", "events", EventInfo, "ListEventsInput", wanted)

    @_sends
    def event_actions(self) -> ApiRequest[tuple[EventAction, ...]]:
        """Get all actions that the audit log records."""
        return _ask_tuple("listEventActions", EventAction)

    @_sends
    def create_webhook(
        self,
        name: str,
        url: str,
        *,
        webhook_id: str | None = None,
        actions: Iterable[str] = (),
        actors: Iterable[str] = (),
        groups: Iterable[str] = (),
        enabled: bool = True,
    ) -> ApiRequest[NewWebhook]:
        """Create a webhook, which gets the events that match from now on. An empty filter matches all. Needs Manage
        Webhooks and View Audit Log.
        """
        wanted = {
            "id": webhook_id,
            "name": name,
            "url": url,
            "enabled": enabled,
            **_word_lists(actions=actions, actors=actors, groups=groups),
        }
        variables = {"input: CreateWebhookInput!": wanted}
        return ask("createWebhook", NewWebhook, variables, mutation=True, arguments=_WEBHOOK_ID)

    @_lists
    def webhooks(self, *, page_size: int = PAGE_SIZE) -> Listing[WebhookInfo]:
        """List webhooks."""
        return _list_records("listWebhooks", "webhooks", WebhookInfo, "ListWebhooksInput", page_size, key=("id",))

    @_sends
    def get_webhook(self, webhook_id: str) -> ApiRequest[WebhookInfo]:
        """Get a webhook."""
        return ask("getWebhook", WebhookInfo, {"id: String!": webhook_id}, arguments=_WEBHOOK_ID)

    @_sends
    def update_webhook(
        self,
        webhook_id: str,
        *,
        name: str | None = None,
        url: str | None = None,
        actions: Iterable[str] | None = None,
        actors: Iterable[str] | None = None,
        groups: Iterable[str] | None = None,
        enabled: bool | None = None,
    ) -> ApiRequest[WebhookInfo]:
        """Change a webhook; None stays as it is. Enabling a stopped one sends the waiting deliveries."""
        lists = _word_lists(actions=actions, actors=actors, groups=groups)
        wanted = {"name": name, "url": url, "enabled": enabled, **lists}
        variables = {"id: String!": webhook_id, "input: UpdateWebhookInput!": wanted}
        return ask("updateWebhook", WebhookInfo, variables, mutation=True, arguments=_WEBHOOK_ID)

    @_sends
    def delete_webhook(self, webhook_id: str) -> ApiRequest[None]:
        """Delete a webhook and its deliveries."""
        return ask("deleteWebhook", _require_true, {"id: String!": webhook_id}, arguments=_WEBHOOK_ID, mutation=True)

    @_sends
    def rotate_webhook(
        self,
        webhook_id: str,
        *,
        overlap: timedelta | str | None = None,
    ) -> ApiRequest[NewWebhook]:
        """Replace the secret of a webhook. The old one signs too during the overlap (default: a day)."""
        variables = {"id: String!": webhook_id, "overlap: String": _iso("overlap", overlap)}
        return ask("rotateWebhookSecret", NewWebhook, variables, mutation=True, arguments=_WEBHOOK_ID)

    @_sends
    def test_webhook(self, webhook_id: str) -> ApiRequest[WebhookAttempt]:
        """Send a test message and return the receiver's answer."""
        return ask("testWebhook", WebhookAttempt, {"id: String!": webhook_id}, arguments=_WEBHOOK_ID, mutation=True)

    @_lists
    def webhook_deliveries(
        self,
        webhook_id: str,
        *,
        state: str | None = None,
        page_size: int = PAGE_SIZE,
    ) -> Listing[WebhookDelivery]:
        """List the deliveries of a webhook, newest first. `state` is WAITING or DELIVERED."""
        wanted = {"id": webhook_id, "state": state, "count": page_size}
        listed = ("listWebhookDeliveries", "deliveries", WebhookDelivery, "ListWebhookDeliveriesInput!")
        return _list_by_cursor(*listed, wanted, _WEBHOOK_ID)

    @_sends
    def replay_webhook(
        self,
        webhook_id: str,
        *,
        delivery_id: str | None = None,
        since: datetime | None = None,
    ) -> ApiRequest[WebhookReplay]:
        """Send a delivery again, or all events since a time, or with neither the waiting ones."""
        when = None if since is None else to_millis("since", since)
        variables = {"input: ReplayWebhookInput!": {"id": webhook_id, "deliveryId": delivery_id, "since": when}}
        return ask("replayWebhook", WebhookReplay, variables, mutation=True, arguments=_WEBHOOK_ID)

    @_sends
    def get_task_status(self, task_id: str) -> ApiRequest[TaskInfo | None]:
        """Get the progress of an operation, or of a task of the search index (`<node>:<number>`). None if it is not
        found or cannot be read now. Needs Get search-index task status.
        """
        return ask("taskStatus", TaskInfo, {"task: String!": task_id}, nullable=True, arguments={"task": "task_id"})

    @_sends
    def index_sizes(self) -> ApiRequest[tuple[IndexInfo, ...]]:
        """Get the rows and size of each time series index. Needs Get time series index sizes."""
        return _ask_tuple("indexSizes", IndexInfo)

    @_sends
    def get_timeseries_histogram(
        self, entity_type: str, aspect: str, *, spans: int = 60
    ) -> ApiRequest[TimeseriesHistogram]:
        """Count the rows of a time series by time, in at most `spans` spans. Needs Truncate time series index."""
        variables = {"input: TimeseriesHistogramInput!": {"entityType": entity_type, "aspect": aspect, "spans": spans}}
        return ask("timeseriesHistogram", TimeseriesHistogram, variables)

    @_sends
    def plan_truncation(
        self,
        entity_type: str,
        aspect: str,
        end_time: datetime,
        *,
        batch_size: int | None = None,
        timeout_seconds: int | None = None,
        force_delete_by_query: bool = False,
        force_reindex: bool = False,
    ) -> ApiRequest[TruncationPlan]:
        """Count what `truncate_series` would delete. Changes nothing. Needs Truncate time series index."""
        options = (batch_size, timeout_seconds, force_delete_by_query, force_reindex)
        return _truncate(TruncationPlan, "plan", entity_type, aspect, end_time, *options)

    @_sends
    def truncate_series(
        self,
        entity_type: str,
        aspect: str,
        end_time: datetime,
        *,
        batch_size: int | None = None,
        timeout_seconds: int | None = None,
        force_delete_by_query: bool = False,
        force_reindex: bool = False,
    ) -> ApiRequest[OperationInfo]:
        """Start to delete the rows of a time series up to `end_time`, and return the operation; `watch_operation`
        follows it. Raises `Conflict` while another operation on the index runs. Needs Truncate time series index.
        """
        options = (batch_size, timeout_seconds, force_delete_by_query, force_reindex)
        return _truncate(OperationInfo, "operation", entity_type, aspect, end_time, *options)

    @_lists
    def operations(self, *, page_size: int = PAGE_SIZE) -> Listing[OperationInfo]:
        """List operations, newest first. Needs Truncate time series index."""
        return _list_records("operations", "operations", OperationInfo, "ListOperationsInput", page_size, key=("id",))

    @_sends
    def get_operation(self, operation_id: str) -> ApiRequest[OperationInfo]:
        """Get an operation by the id that `truncate_series` returned. Needs Truncate time series index."""
        return _operation(operation_id)

    @_sends
    def cancel_operation(self, operation_id: str) -> ApiRequest[OperationInfo]:
        """Cancel an operation; it stops soon. Raises `Conflict` from state SWAPPING on. Needs Truncate time series
        index.
        """
        variables = {"id: String!": operation_id}
        return ask("cancelOperation", OperationInfo, variables, mutation=True, arguments=_OPERATION_ID)

    @_lists
    def watch_operation(self, operation_id: str, every: float = 1.0) -> Listing[OperationInfo]:
        """Give the operation every `every` seconds until it is over."""
        if not every > 0:
            raise ValueError("every must be more than 0 seconds.")
        request = _operation(operation_id)
        operation = yield Step((), request)
        while not operation.is_over:
            operation = yield Step([operation], request, every)
        yield Step([operation], None)

    @_sends
    def retention_rules(self) -> ApiRequest[tuple[RetentionRuleInfo, ...]]:
        """Get all retention rules, by series. Needs Truncate time series index."""
        return _ask_tuple("retentionRules", RetentionRuleInfo)

    @_sends
    def get_retention_rule(self, series: str) -> ApiRequest[RetentionRuleInfo]:
        """Get the retention rule of a series (`entity.aspect`): its own, or else that of every series (`*`). Needs
        Truncate time series index.
        """
        return ask("retentionRule", RetentionRuleInfo, {"series: String!": series})

    @_sends
    def set_retention_rule(
        self,
        series: str,
        *,
        keep: timedelta | str,
        remove_after: timedelta | str | None = None,
        max_size: str | None = None,
        max_rows: int | None = None,
        keep_last: int | None = None,
        schedule: str | None = None,
        time_zone: str | None = None,
        window: str | None = None,
        at_most: str | None = None,
        mode: str | None = None,
        hold: str | None = None,
    ) -> ApiRequest[RetentionRuleInfo]:
        """Create or replace the retention rule of a series (`entity.aspect`, or `*`). The values are those of a policy
        file, such as `keep="30d"`, `max_size="20GB"`, `at_most="20%"`, `mode="enforce"`; None is the default. Needs
        Truncate time series index.
        """
        rule = {
            "series": series,
            "keep": _iso("keep", keep),
            "removeAfter": _iso("remove_after", remove_after),
            "maxSize": max_size,
            "maxRows": max_rows,
            "keepLast": keep_last,
            "schedule": schedule,
            "timeZone": time_zone,
            "window": window,
            "atMost": at_most,
            "mode": mode,
            "hold": hold,
        }
        given = {name: value for name, value in rule.items() if value is not None}
        variables = {"input: RetentionRuleInput!": _rule_input(given)}
        return ask("setRetentionRule", RetentionRuleInfo, variables, mutation=True)

    @_sends
    def delete_retention_rule(self, series: str) -> ApiRequest[None]:
        """Delete the retention rule of a series. Needs Truncate time series index."""
        return ask("deleteRetentionRule", _require_true, {"series: String!": series}, mutation=True)

    @_sends
    def retention_holds(self) -> ApiRequest[tuple[RetentionHold, ...]]:
        """Get all holds, by series. Needs Truncate time series index."""
        return _ask_tuple("retentionHolds", RetentionHold)

    @_sends
    def hold_series(self, series: str, reason: str) -> ApiRequest[HeldSeries]:
        """Hold a series, or all for `*`: nothing of it is removed until it is released. Needs Truncate time series
        index.
        """
        variables = {"input: HoldSeriesInput!": {"series": series, "reason": reason}}
        return ask("holdSeries", HeldSeries, variables, mutation=True)

    @_sends
    def release_series(self, series: str) -> ApiRequest[None]:
        """Release the hold on a series. Needs Truncate time series index, and Release Retention Holds if someone else
        set the hold.
        """
        return ask("releaseSeries", _require_true, {"series: String!": series}, mutation=True)

    @_lists
    def retention_plan(self, series: str | None = None) -> Listing[SeriesPlanInfo]:
        """Show for every series, or for one (`entity.aspect`), what a run of its retention rule would remove now. Needs
        Truncate time series index.
        """
        call = "retentionPlan", "plans", SeriesPlanInfo, "RetentionPlanInput"
        return _list_records(*call, PLAN_PAGE_SIZE, key=("series",), series=series)

    @_lists
    def retention_runs(self, series: str | None = None, *, page_size: int = PAGE_SIZE) -> Listing[RetentionRunInfo]:
        """List the runs of retention rules, newest first. Needs Truncate time series index."""
        call = "retentionRuns", "runs", RetentionRunInfo, "ListRetentionRunsInput"
        return _list_records(*call, page_size, key=("number",), series=series)

    @_sends
    def run_retention(self, series: str) -> ApiRequest[RetentionRunInfo]:
        """Run the retention rule of a series now, as if it were due. Needs Truncate time series index."""
        return ask("runRetention", RetentionRunInfo, {"series: String!": series}, mutation=True)

    @_sends
    def approve_retention_run(self, number: int, rows: int) -> ApiRequest[RetentionRunInfo]:
        """Approve a run that waits and would remove this number of rows. Raises `Conflict` if the number differs.
        If there are more when it starts, it waits again. Needs Truncate time series index.
        """
        variables = {"input: ApproveRetentionRunInput!": {"number": number, "rows": rows}}
        return ask("approveRetentionRun", RetentionRunInfo, variables, mutation=True)

    @_sends
    def series_sizes(self, series: str | None = None, *, days: int = 30) -> ApiRequest[tuple[SeriesSize, ...]]:
        """Get the sizes of series by day. Needs Get time series index sizes or Truncate time series index."""
        return _ask_tuple("seriesSizes", SeriesSize, {"input: SeriesSizesInput": {"series": series, "days": days}})


def identity(headers: Any) -> VerifiedToken:
    """Read the headers with which the server confirms a token."""
    return VerifiedToken(headers["x-auth-urn"], headers["x-auth-token-id"], tuple(headers["x-auth-scopes"].split()))


def _ask_tuple(call: str, kind: type[R], variables: Json | None = None) -> ApiRequest[tuple[R, ...]]:
    return ask(call, lambda found: tuple(record(kind, one) for one in found), variables, selected=selection(kind))


def _page(
    call: str, items: str, kind: type[R], input_type: str, wanted: Json, names: Mapping[str, str] | None = None
) -> ApiRequest[ResultPage[R]]:
    def read(found: Json) -> ResultPage[R]:
        return ResultPage(tuple(record(kind, item) for item in found[items]), found["total"])

    selected = f"total {items} {{ {selection(kind)} }}"
    return ask(call, read, {f"input: {input_type}": wanted}, selected=selected, arguments=names)


def _list_records(
    call: str,
    items: str,
    kind: type[R],
    input_type: str,
    page_size: int,
    *,
    key: Sequence[str] = ("urn",),
    names: Mapping[str, str] | None = None,
    **wanted: Any,
) -> Listing[R]:
    """List records that the fields of `key` identify."""

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[R]]:
        return _page(call, items, kind, input_type, {"start": start, "count": count, **wanted}, names)

    return list_by_offset(fetch, lambda item: " ".join(str(getattr(item, name)) for name in key), page_size)


def _change_members(call: str, group: str, users: Iterable[str]) -> ApiRequest[None]:
    variables = {"input: GroupMembersInput!": {"groupUrn": group, **_word_lists(users=users)}}
    return ask(call, _require_true, variables, mutation=True)


def _form(path: str, fields: Mapping[str, str], read: Callable[[Any], T], **how: Any) -> ApiRequest[T]:
    """A request of the OAuth addresses. It needs no credential but what is in the form."""
    media = "application/x-www-form-urlencoded"
    return ApiRequest(read, path, urlencode(fields).encode(), public=True, media=media, **how)


def _require_true(found: Any) -> None:
    """Read a mutation that answers with true."""
    if found is not True:
        raise ValueError("neither done nor refused")


def _ignore(_: object) -> None:
    """Read an answer whose content does not matter."""


def _new_token(call: str, variables: Json, key: str | None) -> ApiRequest[NewToken]:
    """Under an Idempotency-Key, so that it may be retried: the server answers with the same token again."""
    return ask(call, NewToken, variables, mutation=True, key=key or secrets.token_hex(16))


def _lifetime(duration: Lifetime) -> dict[str, str | None]:
    if isinstance(duration, Duration):
        return {"duration": duration.name}
    if isinstance(duration, str) and duration.upper() in Duration.__members__:
        return {"duration": duration.upper()}
    return {"durationIso": _iso("duration", duration)}


def _iso(argument: str, span: timedelta | str | None) -> str | None:
    """A duration as the API takes it. The server rejects text that is none."""
    if isinstance(span, timedelta):
        return f"PT{int(span.total_seconds())}S"
    if span is None:
        return None
    if not isinstance(span, str):
        raise TypeError(f"{argument} must be a timedelta or a text such as {SPAN_FORMS}.")
    milliseconds = parse_span(span)
    return span if milliseconds is None else written_iso(milliseconds)


def _word_lists(**given: Iterable[str] | None) -> dict[str, list[str]]:
    """The lists that are given, by the GraphQL names of the arguments."""
    lists = {name: as_list(name, words) for name, words in given.items() if words is not None}
    return {_FIELDS.get(name, name): words for name, words in lists.items()}


def as_list(argument: str, words: Iterable[str]) -> list[str]:
    """A string is rejected: it would be taken as a list of its characters."""
    if isinstance(words, str):
        raise ValueError(f"{argument} must be a list, such as ['{words}'].")  # noqa: TRY004 - as for all arguments
    return list(words)


def _token_page(
    filters: Sequence[TokenFilter], start: int, count: int, sort: str, descending: bool
) -> ApiRequest[ResultPage[TokenInfo]]:
    wanted = {
        "start": start,
        "count": count,
        "filters": [condition.as_input() for condition in filters],
        "sort": {"field": sort, "order": "DESCENDING" if descending else "ASCENDING"},
    }
    return _page("listAccessTokens", "tokens", TokenInfo, "ListAccessTokensInput", wanted)


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


def _policy_input(
    name: str,
    privileges: Iterable[str],
    scopes: Iterable[str],
    actors: PolicyActors,
    description: str | None,
    state: str,
) -> dict[str, Any]:
    return {
        "type": "PLATFORM",
        "name": name,
        "state": state,
        "description": description,
        "privileges": as_list("privileges", privileges),
        "scopes": as_list("scopes", scopes),
        "actors": _actors_input(actors),
    }


def _resources(found: Any) -> tuple[ResourceInfo, ...]:
    return tuple(record(ResourceInfo, one) for one in found)


def _declared_input(policy: DeclaredPolicyInfo) -> dict[str, Any]:
    """Without empty parts: the server limits how many parts a body has."""
    sent = {name: value for name, value in asdict(policy).items() if value}
    return sent | {"actors": _actors_input(policy.actors)}


def _rule_input(rule: Json) -> dict[str, Any]:
    """As GraphQL names the mode."""
    sent = {name: _iso(name, value) if name in _RULE_DURATIONS else value for name, value in rule.items()}
    mode = sent.get("mode")
    return {**sent, "mode": mode.upper()} if isinstance(mode, str) else sent


def _actors_input(actors: PolicyActors) -> dict[str, Any]:
    """Without empty parts, too."""
    users, groups = as_list("actors.users", actors.users), as_list("actors.groups", actors.groups)
    sent = {"users": users, "groups": groups, "allUsers": actors.all_users}
    return {name: value for name, value in sent.items() if value}


def _set_status(urn: str, status: str) -> ApiRequest[None]:
    variables = {"urn: String!": urn, "status: CorpUserStatus!": status}
    return ask("updateUserStatus", _ignore, variables, mutation=True)


def _truncate(
    kind: type[R],
    part: str,
    entity_type: str,
    aspect: str,
    end_time: datetime,
    batch_size: int | None,
    timeout_seconds: int | None,
    force_delete_by_query: bool,
    force_reindex: bool,
) -> ApiRequest[R]:
    """`part` is what the server answers with: the plan of a dry run, or the operation that it started."""
    if force_delete_by_query and force_reindex:
        raise ValueError("force_delete_by_query and force_reindex must not both be True.")
    is_plan = part == "plan"
    wanted = {
        "entityType": entity_type,
        "aspect": aspect,
        "endTimeMillis": to_millis("end_time", end_time),
        "dryRun": is_plan,
        "batchSize": batch_size,
        "timeoutSeconds": timeout_seconds,
        "forceDeleteByQuery": force_delete_by_query,
        "forceReindex": force_reindex,
    }
    variables = {"input: TruncateTimeseriesAspectInput!": wanted}
    return ask("truncateTimeseriesAspect", kind, variables, part=part, mutation=True, changes=not is_plan)


def _operation(operation_id: str) -> ApiRequest[OperationInfo]:
    return ask("operation", OperationInfo, {"id: String!": operation_id}, arguments=_OPERATION_ID)
