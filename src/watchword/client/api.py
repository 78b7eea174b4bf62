"""Everything that can be asked of a server: the methods of `Client` and `AsyncClient`, each written once.

A method here makes a request or a listing, and its decorator lets a client send it: `Client` returns the result, or an
iterator over a list; `AsyncClient` returns an awaitable, or an asynchronous iterator.
"""

import inspect
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload
from urllib.parse import urlencode

from watchword.client.api_requests import (
    FORM,
    PAGE_SIZE,
    ApiRequest,
    CursorListing,
    Listing,
    OffsetListing,
    Polling,
    ResultPage,
    ask,
    ask_raw,
    list_records,
    page_request,
    require_true,
)
from watchword.client.records import (
    ActorInfo,
    ActorSummary,
    AppliedPolicies,
    DeclaredPolicy,
    EventAction,
    EventInfo,
    GroupInfo,
    Identity,
    IndexInfo,
    Json,
    Me,
    NewToken,
    OffboardingReport,
    OperationInfo,
    PolicyActors,
    PolicyInfo,
    PrivilegeDescription,
    PrivilegeExplanation,
    R,
    RevocationPlan,
    RevocationReceipt,
    ServerInfo,
    ServiceAccountInfo,
    TaskInfo,
    TimeseriesHistogram,
    TokenInfo,
    TruncationPlan,
    record,
    selection,
    to_millis,
)
from watchword.domain.accounts import is_account
from watchword.domain.lifetimes import Duration
from watchword.domain.secret import Secret

if TYPE_CHECKING:
    from watchword.client.http_clients import AsyncClient, Client

A = ParamSpec("A")
T = TypeVar("T")
Lifetime = Duration | timedelta | str


class _Request(Generic[A, T]):
    """The type of a method that sends one request."""

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[A, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[A, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, A], Any]: ...
    def __get__(self, client: Any, kind: type) -> Any: ...


class _Listing(Generic[A, T]):
    """The type of a method that goes through a list."""

    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[A, Iterator[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[A, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[Concatenate[Any, A], Any]: ...
    def __get__(self, client: Any, kind: type) -> Any: ...


def _sends(make: Callable[Concatenate[Any, A], ApiRequest[T]]) -> _Request[A, T]:
    def method(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> Any:
        return self._send(make(self, *args, **kwargs))

    return cast("_Request[A, T]", _described(method, make))


def _lists(make: Callable[Concatenate[Any, A], Listing[Any, T]]) -> _Listing[A, T]:
    def method(self: Any, /, *args: A.args, **kwargs: A.kwargs) -> Any:
        return self._list(make(self, *args, **kwargs))

    return cast("_Listing[A, T]", _described(method, make))


def _described(method: Any, make: Callable[..., Any]) -> Any:
    """Give a method the name, docstring and parameters of the function that it wraps."""
    method.__name__, method.__qualname__, method.__doc__ = make.__name__, make.__qualname__, make.__doc__
    method.__signature__ = inspect.signature(make).replace(return_annotation=inspect.Signature.empty)
    return method


@dataclass(frozen=True, slots=True)
class Where:
    """A condition on tokens, such as `Where("name", "nightly", condition="CONTAIN")`. One of the values must match. For
    a time the value is a datetime.
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
    def server(self) -> ApiRequest[ServerInfo]:
        """Get the server's version and what it can do. Needs no credential."""

        def read(answer: Json) -> ServerInfo:
            found = answer["watchword"]
            return ServerInfo(version=found["version"], capabilities=tuple(found["capabilities"]))

        return ApiRequest(read, method="GET", path="/config", public=True)

    @_sends
    def me(self) -> ApiRequest[Me]:
        """Get the actor that this client acts as."""
        return ask_raw("me", lambda found: record(Me, found["corpUser"]), None, f"corpUser {{ {selection(Me)} }}")

    @_sends
    def granted_privileges(self, actor: str) -> ApiRequest[tuple[str, ...]]:
        """Get an actor's privileges. Other actors than the caller need Manage Policies."""
        call = "getGrantedPrivileges(input: {actorUrn: $actor})"
        return ask_raw(call, lambda found: tuple(found["privileges"]), {"actor: String!": actor}, "privileges")

    @_sends
    def explain_privilege(self, actor: str, privilege: str) -> ApiRequest[PrivilegeExplanation]:
        """Explain whether an actor has a privilege, and by which policies."""
        wanted = {"actorUrn": actor, "privilege": privilege}
        variables = {"input: ExplainPrivilegeInput!": wanted}
        return ask("explainPrivilege(input: $input)", PrivilegeExplanation, variables)

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
        """Create a token for a user or service account. `duration` is a named one such as ONE_WEEK, a timedelta, or ISO
        8601 such as P3D. `scopes`, `audience` and `networks` (CIDR) limit the token; None sets no limit, an empty list
        allows nothing. The same `key` returns the same token for a day.
        """
        wanted = {
            "type": "SERVICE_ACCOUNT" if is_account(actor) else "PERSONAL",
            "actorUrn": actor,
            "name": name,
            "description": description,
            **_lifetime(duration),
            **_limits(scopes, audience, networks),
        }
        return _new_token("createAccessToken(input: $input)", {"input: GetAccessTokenInput!": wanted}, key)

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
        wanted = {"name": name, "description": description, **lifetime, **_limits(scopes, audience, networks)}
        return _new_token("deriveAccessToken(input: $input)", {"input: DeriveAccessTokenInput!": wanted}, key)

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
        variables = {"id: String!": token_id, "overlap: String": _iso(overlap), "grace: String": _iso(grace)}
        return _new_token("rotateAccessToken(tokenId: $id, overlap: $overlap, grace: $grace)", variables, key)

    @_sends
    def token_page(
        self,
        *where: Where,
        start: int = 0,
        count: int = 20,
        sort: str = "expiresAt",
        descending: bool = True,
    ) -> ApiRequest[ResultPage[TokenInfo]]:
        """Get one page of the tokens that meet all conditions, and their number. Tokens of other actors need Manage
        All Access Tokens.
        """
        return _token_page(where, start, count, sort, descending)

    @_lists
    def tokens(
        self, *where: Where, sort: str = "expiresAt", descending: bool = True, page_size: int = PAGE_SIZE
    ) -> OffsetListing[TokenInfo]:
        """List the tokens that meet all conditions."""
        return OffsetListing(
            lambda start, count: _token_page(where, start, count, sort, descending), lambda token: token.id, page_size
        )

    @_sends
    def get_token(self, token_id: str) -> ApiRequest[TokenInfo]:
        """Get a token's record by id or urn, revoked or not."""
        return ask("getAccessToken(id: $id)", TokenInfo, {"id: String!": token_id}, arguments={"id": "token_id"})

    @_sends
    def find_token(self, token: str | Secret[str]) -> ApiRequest[TokenInfo]:
        """Get the record of a token that the caller has."""
        return ask("getAccessTokenMetadata(token: $token)", TokenInfo, {"token: String!": _reveal(token)})

    @_sends
    def verify_token(self) -> ApiRequest[Identity]:
        """Verify the client's token as a gateway does. This is a use of the token: it starts the grace period of a
        rotation. A token for another audience than Watchword raises `Unauthorized` with reason `wrong_audience`.
        """

        def read(answer: Any) -> Identity:
            raise ValueError("an answer with a body")

        return ApiRequest(read, method="GET", path="/auth", read_headers=identity)

    @_sends
    def revoke_token(self, token_id: str, *, cascade: bool = False) -> ApiRequest[None]:
        """Revoke a token, by id or urn, and those derived from it; with `cascade` also those created with one of them.
        When this returns, no instance accepts any of them.
        """
        call = "revokeAccessToken(tokenId: $id, cascade: $cascade)"
        return ask_raw(call, require_true, {"id: String!": token_id, "cascade: Boolean": cascade}, mutation=True)

    @_sends
    def plan_revocation(
        self, *where: Where, ids: Iterable[str] | None = None, everything: bool = False, cascade: bool = False
    ) -> ApiRequest[RevocationPlan]:
        """Count what `revoke_tokens` would revoke, by actor. Changes nothing."""
        wanted = {**_selected_tokens(where, ids, everything, cascade), "dryRun": True}
        variables = {"input: RevokeAccessTokensInput!": wanted}
        return ask("revokeAccessTokens(input: $input)", RevocationPlan, variables, mutation=True, changes=False)

    @_sends
    def revoke_tokens(
        self,
        *where: Where,
        ids: Iterable[str] | None = None,
        everything: bool = False,
        cascade: bool = False,
        at_most: int | None = None,
    ) -> ApiRequest[RevocationReceipt]:
        """Revoke all tokens that meet every condition, or that have one of the ids, at most 100,000 in one step. To
        revoke all tokens there are, set `everything`. Tokens of other actors need Manage All Access Tokens. If more
        than `at_most` tokens match, none is revoked and `Conflict` is raised.
        """
        wanted = {**_selected_tokens(where, ids, everything, cascade), "dryRun": False}
        if at_most is not None:
            wanted["atMost"] = at_most
        variables = {"input: RevokeAccessTokensInput!": wanted}
        return ask("revokeAccessTokens(input: $input)", RevocationReceipt, variables, mutation=True)

    @_sends
    def surrender_token(self, token: str | Secret[str]) -> ApiRequest[None]:
        """Revoke a token that was found somewhere. Sends no credential. Succeeds too if the token is not one of the
        server's, or is revoked already.
        """
        content = urlencode({"token": _reveal(token)}).encode()
        # Retried like a read: revoking twice does no harm.
        return ApiRequest(
            lambda _: None,
            path="/oauth2/revoke",
            content=content,
            media=FORM,
            public=True,
            read_headers=lambda _: None,
        )

    @_sends
    def jwks(self) -> ApiRequest[Json]:
        """Get the server's public keys, as a JSON Web Key Set. Needs no credential."""

        def read(answer: Json) -> Json:
            if not all(isinstance(key["kid"], str) for key in answer["keys"]):
                raise ValueError("a key without an id")
            return answer

        return ApiRequest(read, method="GET", path="/.well-known/jwks.json", public=True)

    @_sends
    def create_service_account(
        self, display_name: str, *, description: str | None = None
    ) -> ApiRequest[ServiceAccountInfo]:
        """Create a service account. `create_token` creates tokens for its urn. Needs Manage Service Accounts."""
        variables = {"input: CreateServiceAccountInput!": {"displayName": display_name, "description": description}}
        return ask("createServiceAccount(input: $input)", ServiceAccountInfo, variables, mutation=True)

    @_lists
    def service_accounts(
        self, *, query: str | None = None, page_size: int = PAGE_SIZE
    ) -> OffsetListing[ServiceAccountInfo]:
        """List service accounts, all or those with `query` in their name or urn."""
        call, input_type = "listServiceAccounts", "ListServiceAccountsInput"
        return list_records(call, input_type, "serviceAccounts", ServiceAccountInfo, page_size, query=query)

    @_sends
    def get_service_account(self, urn: str) -> ApiRequest[ServiceAccountInfo]:
        """Get a service account."""
        return ask("getServiceAccount(urn: $urn)", ServiceAccountInfo, {"urn: String!": urn})

    @_sends
    def delete_service_account(self, urn: str) -> ApiRequest[None]:
        """Delete a service account and revoke its tokens. Its urn is never used again."""
        return ask_raw("deleteServiceAccount(urn: $urn)", require_true, {"urn: String!": urn}, mutation=True)

    @_lists
    def policies(self, *, query: str | None = None, page_size: int = PAGE_SIZE) -> OffsetListing[PolicyInfo]:
        """List policies, all or those with `query` in their name or description."""
        return list_records("listPolicies", "ListPoliciesInput!", "policies", PolicyInfo, page_size, query=query)

    @_sends
    def get_policy(self, urn: str) -> ApiRequest[PolicyInfo]:
        """Get a policy."""
        return ask("getPolicy(urn: $urn)", PolicyInfo, {"urn: String!": urn})

    @_sends
    def create_policy(
        self,
        name: str,
        privileges: Iterable[str],
        actors: PolicyActors,
        *,
        description: str | None = None,
        state: str = "ACTIVE",
    ) -> ApiRequest[str]:
        """Create a policy and return its urn."""
        variables = {"input: PolicyUpdateInput!": _policy_input(name, privileges, actors, description, state)}
        return ask_raw("createPolicy(input: $input)", str, variables, mutation=True)

    @_sends
    def update_policy(
        self,
        urn: str,
        name: str,
        privileges: Iterable[str],
        actors: PolicyActors,
        *,
        description: str | None = None,
        state: str = "ACTIVE",
    ) -> ApiRequest[str]:
        """Replace a policy and return its urn."""
        wanted = _policy_input(name, privileges, actors, description, state)
        variables = {"urn: String!": urn, "input: PolicyUpdateInput!": wanted}
        return ask_raw("updatePolicy(urn: $urn, input: $input)", str, variables, mutation=True)

    @_sends
    def delete_policy(self, urn: str) -> ApiRequest[None]:
        """Delete a policy."""
        return ask_raw("deletePolicy(urn: $urn)", lambda _: None, {"urn: String!": urn}, mutation=True)

    @_sends
    def apply_policies(
        self,
        declared: Iterable[DeclaredPolicy],
        *,
        set: str = "default",  # noqa: A002 - the schema's word
        prune: bool = False,
        dry_run: bool = False,
    ) -> ApiRequest[AppliedPolicies]:
        """Create or update the policies of a set in one transaction. `prune` deletes the policies of the set that are
        not declared. A dry run changes nothing and returns what would change.
        """
        policies = [
            {
                "id": policy.id,
                "name": policy.name,
                "description": policy.description,
                "state": policy.state,
                "privileges": list(policy.privileges),
                "actors": _actors_input(policy.actors),
            }
            for policy in declared
        ]
        wanted = {"policies": policies, "set": set, "prune": prune, "dryRun": dry_run}
        variables = {"input: ApplyPoliciesInput!": wanted}
        return ask("applyPolicies(input: $input)", AppliedPolicies, variables, mutation=True, changes=not dry_run)

    @_lists
    def groups(self, *, page_size: int = PAGE_SIZE) -> OffsetListing[GroupInfo]:
        """List groups."""
        return list_records("listGroups", "ListGroupsInput!", "groups", GroupInfo, page_size)

    @_sends
    def get_group(self, urn: str) -> ApiRequest[GroupInfo]:
        """Get a group."""
        return ask("getGroup(urn: $urn)", GroupInfo, {"urn: String!": urn})

    @_sends
    def create_group(
        self,
        name: str,
        *,
        id: str | None = None,  # noqa: A002 - the schema's word
        description: str | None = None,
    ) -> ApiRequest[str]:
        """Create a group and return its urn, which ends with `id` if that is given."""
        variables = {"input: CreateGroupInput!": {"id": id, "name": name, "description": description}}
        return ask_raw("createGroup(input: $input)", str, variables, mutation=True)

    @_sends
    def delete_group(self, urn: str) -> ApiRequest[None]:
        """Delete a group and its memberships."""
        return ask_raw("removeGroup(urn: $urn)", require_true, {"urn: String!": urn}, mutation=True)

    @_lists
    def group_members(self, urn: str, *, page_size: int = PAGE_SIZE) -> OffsetListing[str]:
        """List the urns of a group's members."""

        def read(found: Json) -> ResultPage[str]:
            return ResultPage(tuple(member["urn"] for member in found["members"]), found["total"])

        def fetch(start: int, count: int) -> ApiRequest[ResultPage[str]]:
            variables = {"input: ListGroupMembersInput!": {"groupUrn": urn, "start": start, "count": count}}
            call, selected = "listGroupMembers(input: $input)", "total members { urn }"
            return ask_raw(call, read, variables, selected, arguments={"groupUrn": "urn"})

        return OffsetListing(fetch, lambda member: member, page_size)

    @_sends
    def add_members(self, group: str, users: Iterable[str]) -> ApiRequest[None]:
        """Add users to a group."""
        variables = {"input: GroupMembersInput!": {"groupUrn": group, "userUrns": list(users)}}
        return ask_raw("addGroupMembers(input: $input)", require_true, variables, mutation=True)

    @_sends
    def remove_members(self, group: str, users: Iterable[str]) -> ApiRequest[None]:
        """Remove users from a group."""
        variables = {"input: GroupMembersInput!": {"groupUrn": group, "userUrns": list(users)}}
        return ask_raw("removeGroupMembers(input: $input)", require_true, variables, mutation=True)

    @_lists
    def actors(
        self, *, prefix: str = "", only_suspended: bool = False, page_size: int = PAGE_SIZE
    ) -> CursorListing[ActorSummary]:
        """List the known actors by urn, all or those whose urn or user name starts with `prefix`."""
        wanted = {"prefix": prefix, "onlySuspended": only_suspended, "count": page_size}
        return CursorListing("listActors", "ListActorsInput", "actors", ActorSummary, wanted)

    @_sends
    def actor(self, urn: str) -> ApiRequest[ActorInfo]:
        """Get an actor's status."""
        return ask("getActor(urn: $urn)", ActorInfo, {"urn: String!": urn})

    @_sends
    def suspend(self, urn: str) -> ApiRequest[None]:
        """Suspend an actor: the server rejects its requests and all its tokens."""
        return _set_status(urn, "SUSPENDED")

    @_sends
    def resume(self, urn: str) -> ApiRequest[None]:
        """End the suspension of an actor."""
        return _set_status(urn, "ACTIVE")

    @_sends
    def offboard(self, urn: str, *, dry_run: bool = True, revoke_minted: bool = False) -> ApiRequest[OffboardingReport]:
        """Suspend an actor, revoke its tokens, end its sessions and remove it from its groups. A dry run, the default,
        only reports what there is. `revoke_minted` also revokes tokens that the actor created for others.
        """
        variables = {"input: OffboardActorInput!": {"urn": urn, "dryRun": dry_run, "revokeMinted": revoke_minted}}
        return ask("offboardActor(input: $input)", OffboardingReport, variables, mutation=True, changes=not dry_run)

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
    ) -> CursorListing[EventInfo]:
        """List the events of the audit log, newest first, at or after `since` and before `until`. `about` selects
        events that target or name an actor, or target one of its tokens. Needs View Audit Log.
        """
        lists = {
            "actorUrns": list(actors),
            "actions": list(actions),
            "targets": list(targets),
            "aboutUrns": list(about),
        }
        times = {
            name: None if when is None else to_millis(name, when) for name, when in (("since", since), ("until", until))
        }
        wanted = {name: words for name, words in lists.items() if words} | times | {"count": page_size}
        return CursorListing("listEvents", "ListEventsInput", "events", EventInfo, wanted)

    @_sends
    def event_actions(self) -> ApiRequest[tuple[EventAction, ...]]:
        """Get all actions that the audit log records."""
        return _ask_tuple("listEventActions", EventAction)

    @_sends
    def task_status(self, task: str) -> ApiRequest[TaskInfo | None]:
        """Get the progress of an operation, or of a task of the search index (`<node>:<number>`). None if it is not
        found or cannot be read now. Needs Get search-index task status.
        """

        def read(found: Json | None) -> TaskInfo | None:
            return None if found is None else record(TaskInfo, found)

        call = "taskStatus(task: $task)"
        return ask_raw(call, read, {"task: String!": task}, selection(TaskInfo), nullable=True)

    @_sends
    def index_sizes(self) -> ApiRequest[tuple[IndexInfo, ...]]:
        """Get the rows and size of each time series index. Needs Get time series index sizes."""
        return _ask_tuple("indexSizes", IndexInfo)

    @_sends
    def timeseries_histogram(
        self, entity_type: str, aspect: str, *, spans: int = 60
    ) -> ApiRequest[TimeseriesHistogram]:
        """Count the rows of a time series by time, in at most `spans` spans. Needs Truncate time series index."""
        variables = {"input: TimeseriesHistogramInput!": {"entityType": entity_type, "aspect": aspect, "spans": spans}}
        return ask("timeseriesHistogram(input: $input)", TimeseriesHistogram, variables)

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
        """Count what `truncate` would delete. Changes nothing. Needs Truncate time series index."""
        options = (batch_size, timeout_seconds, force_delete_by_query, force_reindex)
        return _truncate(TruncationPlan, "plan", entity_type, aspect, end_time, *options)

    @_sends
    def truncate(
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
    def operations(self, *, page_size: int = PAGE_SIZE) -> OffsetListing[OperationInfo]:
        """List operations, newest first. Needs Truncate time series index."""
        return list_records("operations", "ListOperationsInput", "operations", OperationInfo, page_size, key="id")

    @_sends
    def operation(self, id: str) -> ApiRequest[OperationInfo]:  # noqa: A002 - the schema's word
        """Get an operation by the id that `truncate` returned. Needs Truncate time series index."""
        return _operation(id)

    @_sends
    def cancel_operation(self, id: str) -> ApiRequest[OperationInfo]:  # noqa: A002
        """Cancel an operation; it stops soon. Raises `Conflict` from state SWAPPING on. Needs Truncate time series
        index.
        """
        return ask("cancelOperation(id: $id)", OperationInfo, {"id: String!": id}, mutation=True)

    @_lists
    def watch_operation(self, id: str, every: float = 1.0) -> Polling[OperationInfo]:  # noqa: A002
        """Give the operation every `every` seconds until it is over."""
        return Polling(_operation(id), lambda found: found.is_over, every)


def identity(headers: Any) -> Identity:
    """Read the headers with which the server confirms a token."""
    return Identity(headers["x-auth-urn"], headers["x-auth-token-id"], tuple(headers["x-auth-scopes"].split()))


def _ask_tuple(call: str, kind: type[R]) -> ApiRequest[tuple[R, ...]]:
    return ask_raw(call, lambda found: tuple(record(kind, one) for one in found), None, selection(kind))


def _new_token(call: str, variables: Json, key: str | None) -> ApiRequest[NewToken]:
    """Under an Idempotency-Key, so that it may be retried: the server answers with the same token again."""

    def read(found: Json) -> NewToken:
        return NewToken(token=Secret(found["accessToken"]), metadata=record(TokenInfo, found["metadata"]))

    selected = f"accessToken metadata {{ {selection(TokenInfo)} }}"
    return ask_raw(call, read, variables, selected, mutation=True, key=key or secrets.token_hex(16))


def _lifetime(duration: Lifetime) -> dict[str, str | None]:
    if isinstance(duration, Duration):
        return {"duration": duration.name}
    if isinstance(duration, str) and duration in Duration.__members__:
        return {"duration": duration}
    return {"durationIso": _iso(duration)}


def _iso(span: timedelta | str | None) -> str | None:
    return f"PT{int(span.total_seconds())}S" if isinstance(span, timedelta) else span


def _limits(
    scopes: Iterable[str] | None, audience: Iterable[str] | None, networks: Iterable[str] | None
) -> dict[str, list[str]]:
    given = {"scopes": scopes, "audience": audience, "networks": networks}
    lists = {name: as_list(name, words) for name, words in given.items() if words is not None}
    return {"allowedNetworks" if name == "networks" else name: words for name, words in lists.items()}


def as_list(argument: str, words: Iterable[str]) -> list[str]:
    """A string is rejected: it would be taken as a list of its characters."""
    if isinstance(words, str):
        raise ValueError(f"{argument} must be a list, such as ['{words}'].")  # noqa: TRY004 - as for all arguments
    return list(words)


def _token_page(
    where: Sequence[Where], start: int, count: int, sort: str, descending: bool
) -> ApiRequest[ResultPage[TokenInfo]]:
    wanted = {
        "start": start,
        "count": count,
        "filters": [condition.as_input() for condition in where],
        "sort": {"field": sort, "order": "DESCENDING" if descending else "ASCENDING"},
    }
    return page_request("listAccessTokens", "ListAccessTokensInput", "tokens", TokenInfo, wanted)


def _selected_tokens(
    where: Sequence[Where], ids: Iterable[str] | None, everything: bool, cascade: bool
) -> dict[str, Any]:
    return {
        "ids": None if ids is None else as_list("ids", ids),
        "filters": [condition.as_input() for condition in where],
        "all": everything,
        "cascade": cascade,
    }


def _reveal(token: str | Secret[str]) -> str:
    return token.reveal() if isinstance(token, Secret) else token


def _policy_input(
    name: str, privileges: Iterable[str], actors: PolicyActors, description: str | None, state: str
) -> dict[str, Any]:
    return {
        "type": "PLATFORM",
        "name": name,
        "state": state,
        "description": description,
        "privileges": as_list("privileges", privileges),
        "actors": _actors_input(actors),
    }


def _actors_input(actors: PolicyActors) -> dict[str, Any]:
    """Without empty parts: the server limits how many parts a body has."""
    sent = {"users": list(actors.users), "groups": list(actors.groups), "allUsers": actors.all_users}
    return {name: value for name, value in sent.items() if value}


def _set_status(urn: str, status: str) -> ApiRequest[None]:
    variables = {"urn: String!": urn, "status: CorpUserStatus!": status}
    return ask_raw("updateUserStatus(urn: $urn, status: $status)", lambda _: None, variables, mutation=True)


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
    return ask_raw(
        "truncateTimeseriesAspect(input: $input)",
        lambda found: record(kind, found[part]),
        {"input: TruncateTimeseriesAspectInput!": wanted},
        f"{part} {{ {selection(kind)} }}",
        mutation=True,
        changes=not is_plan,
    )


def _operation(operation_id: str) -> ApiRequest[OperationInfo]:
    return ask("operation(id: $id)", OperationInfo, {"id: String!": operation_id})
