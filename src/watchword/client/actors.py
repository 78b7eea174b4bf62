"""Actors: users, service accounts, groups, console sessions and the mail that they get."""

from collections.abc import Iterable
from datetime import datetime

from watchword.client.policies import PolicyInfo
from watchword.client.records import Record, UserInfo
from watchword.client.requests import (
    PAGE_SIZE,
    ApiRequest,
    Listing,
    as_list,
    ask,
    ask_tuple,
    ignore,
    list_by_cursor,
    list_records,
    lists,
    named,
    require_true,
    sends,
    word_lists,
)
from watchword.client.tokens import TokenInfo


class ServiceAccountInfo(Record):
    """An actor for a program."""

    urn: str
    display_name: str
    description: str | None
    status: str
    created_at: datetime
    created_by: str
    created_by_name: str | None
    set: str | None


class GroupInfo(Record):
    """A group of users."""

    urn: str
    name: str
    description: str | None
    member_count: int
    set: str | None


class ActorIdentity(Record):
    """A person of the identity provider, who alone signs in as an actor."""

    issuer: str
    subject: str
    linked_at: datetime
    signed_in_at: datetime | None


class SessionInfo(Record):
    """A console session. `method` is OIDC, TOKEN or LOCAL."""

    id: str
    actor_urn: str
    actor_name: str | None
    method: str
    token_id: str | None
    created_at: datetime
    seen_at: datetime
    ends_at: datetime
    peer: str
    current: bool


class ActorInfo(Record):
    """The name, status and groups of an actor, how many tokens and sessions it has, and the person it is linked to."""

    urn: str
    display_name: str | None
    email: str | None
    status: str
    changed_at: datetime | None
    changed_by: str | None
    changed_by_name: str | None
    known: bool
    live_token_count: int
    """0 while the actor is suspended."""
    suspended_token_count: int
    """Those that would be live if the actor were not suspended."""
    session_count: int
    groups: tuple[str, ...]
    external_groups: tuple[str, ...]
    identity: ActorIdentity | None


class OffboardedTokens(Record):
    """Tokens that an offboarding revoked. `ids` has at most 1,000; the digest covers all of them."""

    count: int
    digest: str
    revoked_at: datetime
    ids: tuple[str, ...]


class OffboardingResult(Record):
    """What an offboarding did. `tokens_for_others` is None if it did not revoke them."""

    at: datetime
    status: str
    tokens: OffboardedTokens
    tokens_for_others: OffboardedTokens | None
    session_count: int
    groups: tuple[str, ...]


class FormerMembership(Record):
    """A group or policy that an actor was removed from. `set` is the policy set that declares the group and may make
    the actor a member again.
    """

    urn: str
    name: str
    set: str | None


class OffboardingSuspension(Record):
    """Who suspended the actor, and what ended since: its own tokens, those it created for others, sessions, memberships
    in groups, and policies that named it.
    """

    at: datetime
    actor_urn: str
    actor_name: str | None
    tokens: OffboardedTokens
    tokens_for_others: OffboardedTokens
    session_count: int
    groups: tuple[FormerMembership, ...]
    policies: tuple[FormerMembership, ...]


class DeclaredMembership(Record):
    """A group of an actor, and the policy set that declares it and may make the actor a member again."""

    urn: str
    set: str


class OffboardingReport(Record):
    """What an actor had before its offboarding. `receipt` says what was done; it is None after a dry run. `suspension`
    is None if the actor was active. `tokens`, `tokens_for_others` (issued by the actor for others; both the last used
    first) and `service_accounts` (created by it) have at most 100 entries.
    """

    dry_run: bool
    urn: str
    display_name: str | None
    status: str
    known: bool
    token_count: int
    tokens: tuple[TokenInfo, ...]
    tokens_for_others_count: int
    tokens_for_others: tuple[TokenInfo, ...]
    session_count: int
    service_accounts: tuple[ServiceAccountInfo, ...]
    groups: tuple[str, ...]
    declared_groups: tuple[DeclaredMembership, ...]
    policies: tuple[PolicyInfo, ...]
    suspension: OffboardingSuspension | None
    receipt: OffboardingResult | None


class ActorSummary(Record):
    """An actor in a list. `groups` has at most 100 entries; `live_token_count` counts at most 1,000."""

    urn: str
    username: str
    display_name: str | None
    email: str | None
    status: str
    changed_at: datetime | None
    changed_by: str | None
    changed_by_name: str | None
    live_token_count: int
    groups: tuple[str, ...]


class MailPreference(Record):
    """A kind of mail, whether the caller wants it, and whether the server sends it at all."""

    kind: str
    description: str
    enabled: bool
    sent: bool


class ActorMethods:
    @sends
    def me(self) -> ApiRequest[UserInfo]:
        """Get the actor that this client acts as."""
        return ask("me", UserInfo, part="corpUser")

    @sends
    def create_service_account(
        self, display_name: str, *, account_id: str | None = None, description: str | None = None
    ) -> ApiRequest[ServiceAccountInfo]:
        """Create a service account, whose urn ends with `account_id` if that is given. `create_token` creates tokens
        for its urn. Needs Manage Service Accounts.
        """
        wanted = {"id": account_id, "displayName": display_name, "description": description}
        variables = {"input: CreateServiceAccountInput!": wanted}
        return ask("createServiceAccount", ServiceAccountInfo, variables, mutation=True, arguments={"id": "account_id"})

    @lists
    def service_accounts(self, *, query: str | None = None, page_size: int = PAGE_SIZE) -> Listing[ServiceAccountInfo]:
        """List service accounts, all or those with `query` in their name or urn."""
        listed = ("listServiceAccounts", "serviceAccounts", ServiceAccountInfo, "ListServiceAccountsInput")
        return list_records(*listed, page_size, query=query)

    @sends
    def get_service_account(self, urn: str) -> ApiRequest[ServiceAccountInfo]:
        """Get a service account."""
        return ask("getServiceAccount", ServiceAccountInfo, {"urn: String!": urn})

    @sends
    def delete_service_account(self, urn: str) -> ApiRequest[None]:
        """Delete a service account and revoke its tokens. Its urn is never used again."""
        return ask("deleteServiceAccount", require_true, {"urn: String!": urn}, mutation=True)

    @lists
    def groups(self, *, page_size: int = PAGE_SIZE) -> Listing[GroupInfo]:
        """List groups."""
        return list_records("listGroups", "groups", GroupInfo, "ListGroupsInput!", page_size)

    @sends
    def get_group(self, urn: str) -> ApiRequest[GroupInfo]:
        """Get a group."""
        return ask("getGroup", GroupInfo, {"urn: String!": urn})

    @sends
    def create_group(
        self, name: str, *, group_id: str | None = None, description: str | None = None
    ) -> ApiRequest[str]:
        """Create a group and return its urn, which ends with `group_id` if that is given."""
        variables = {"input: CreateGroupInput!": {"id": group_id, "name": name, "description": description}}
        return ask("createGroup", str, variables, mutation=True, arguments={"id": "group_id"})

    @sends
    def delete_group(self, urn: str) -> ApiRequest[None]:
        """Delete a group and its memberships."""
        return ask("removeGroup", require_true, {"urn: String!": urn}, mutation=True)

    @lists
    def group_members(self, urn: str, *, page_size: int = PAGE_SIZE) -> Listing[UserInfo]:
        """List the members of a group."""
        listed = ("listGroupMembers", "members", UserInfo, "ListGroupMembersInput!")
        return list_records(*listed, page_size, names={"groupUrn": "urn"}, groupUrn=urn)

    @sends
    def add_members(self, group: str, users: Iterable[str]) -> ApiRequest[None]:
        """Add users to a group."""
        return _change_members("addGroupMembers", group, users)

    @sends
    def remove_members(self, group: str, users: Iterable[str]) -> ApiRequest[None]:
        """Remove users from a group."""
        return _change_members("removeGroupMembers", group, users)

    @lists
    def actors(
        self, *, prefix: str = "", query: str = "", only_suspended: bool = False, page_size: int = PAGE_SIZE
    ) -> Listing[ActorSummary]:
        """List the known actors by urn, all or those whose urn or user name starts with `prefix`, and whose urn, name
        or e-mail address contains `query`.
        """
        wanted = {"prefix": prefix, "query": query, "onlySuspended": only_suspended, "count": page_size}
        return list_by_cursor("listActors", "actors", ActorSummary, "ListActorsInput", wanted)

    @sends
    def get_actor(self, urn: str) -> ApiRequest[ActorInfo]:
        """Get an actor's name and status."""
        return ask("getActor", ActorInfo, {"urn: String!": urn})

    @sends
    def set_actor(self, urn: str, *, display_name: str | None = None, email: str | None = None) -> ApiRequest[None]:
        """Set the display name and e-mail address of an actor. One that is not given stays; an empty one is removed.
        Needs Manage Policies.
        """
        given = {"displayName": display_name, "email": email}
        wanted = {name: value or None for name, value in given.items() if value is not None}
        return ask("setActor", ignore, {"input: SetActorInput!": {"urn": urn, **wanted}}, mutation=True)

    @sends
    def link_actor(self, urn: str, subject: str | None, *, issuer: str | None = None) -> ApiRequest[None]:
        """Link an actor to a person of the identity provider, by the person's `sub`; None removes the link."""
        given = {"actorUrn": urn, "subject": subject, "issuer": issuer}
        names = {"actorUrn": "urn"}
        return ask("linkActor", require_true, {"input: LinkActorInput!": given}, mutation=True, arguments=names)

    @lists
    def sessions(
        self, actor: str | None = None, *, all_actors: bool = False, page_size: int = PAGE_SIZE
    ) -> Listing[SessionInfo]:
        """List the console sessions of an actor, or of all actors; without either, of the caller."""
        listed = ("listSessions", "sessions", SessionInfo, "ListSessionsInput")
        return list_records(*listed, page_size, key=("id",), actorUrn=actor, all=all_actors)

    @sends
    def end_session(self, session_id: str) -> ApiRequest[None]:
        """End a console session."""
        variables = {"id: String!": session_id}
        return ask("endSession", require_true, variables, mutation=True, arguments={"id": "session_id"})

    @sends
    def mail_preferences(self) -> ApiRequest[tuple[MailPreference, ...]]:
        """Get the kinds of mail, and which of them the caller wants."""
        return ask_tuple("mailPreferences", MailPreference)

    @sends
    def set_mail_preferences(self, off: Iterable[str]) -> ApiRequest[None]:
        """Get every kind of mail but these."""
        return ask(
            "setMailPreferences", ignore, {"off: [String!]!": as_list("off", off)}, selected="kind", mutation=True
        )

    @sends
    def suspend_actor(self, urn: str) -> ApiRequest[None]:
        """Suspend an actor: the server rejects its requests and all its tokens."""
        return _set_status(urn, "SUSPENDED")

    @sends
    def resume_actor(self, urn: str) -> ApiRequest[None]:
        """End the suspension of an actor."""
        return _set_status(urn, "ACTIVE")

    @sends
    def offboard_actor(
        self, urn: str, *, dry_run: bool = True, revoke_tokens_for_others: bool = False
    ) -> ApiRequest[OffboardingReport]:
        """Suspend an actor, revoke its tokens, end its sessions and remove it from its groups. A dry run, the default,
        only reports what there is. `revoke_tokens_for_others` also revokes tokens that the actor created for others.
        """
        variables = {"input: OffboardActorInput!": named(locals())}
        return ask("offboardActor", OffboardingReport, variables, mutation=True, changes=not dry_run)


def _change_members(call: str, group: str, users: Iterable[str]) -> ApiRequest[None]:
    variables = {"input: GroupMembersInput!": {"groupUrn": group, **word_lists(users=users)}}
    return ask(call, require_true, variables, mutation=True)


def _set_status(urn: str, status: str) -> ApiRequest[None]:
    variables = {"urn: String!": urn, "status: CorpUserStatus!": status}
    return ask("updateUserStatus", ignore, variables, mutation=True)
