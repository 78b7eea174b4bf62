"""Actors: users, service accounts, groups, console sessions and the mail that they get."""

from collections.abc import Iterable

from watchword.client.answers import (
    ActorInfo,
    ActorSummary,
    GroupInfo,
    MailPreference,
    OffboardingReport,
    ServiceAccountInfo,
    SessionInfo,
    UserInfo,
)
from watchword.client.asynchronous.lists import AsyncResults
from watchword.client.asynchronous.namespace import PAGE_SIZE, AsyncNamespace
from watchword.client.requests import as_list, ask, ask_tuple, ignore, named, require_true, word_lists


class AsyncActors(AsyncNamespace):
    """Users and service accounts: find, name, suspend and offboard them."""

    def list(
        self, *, prefix: str = "", query: str = "", only_suspended: bool = False, page_size: int = PAGE_SIZE
    ) -> AsyncResults[ActorSummary]:
        """List the known actors by urn, all or those whose urn or user name starts with `prefix`, and whose urn, name
        or e-mail address contains `query`.
        """
        wanted = named(prefix=prefix, query=query, only_suspended=only_suspended)
        return self._list_by_cursor("listActors", "actors", ActorSummary, "ListActorsInput", page_size, wanted)

    async def get(self, urn: str) -> ActorInfo:
        """Get an actor's name and status."""
        return await self._send(ask("getActor", ActorInfo, {"urn: String!": urn}))

    async def update(self, urn: str, *, display_name: str | None = None, email: str | None = None) -> None:
        """Set the display name and e-mail address of an actor. One that is not given stays; an empty one is removed.
        Needs Manage Policies.
        """
        given = named(display_name=display_name, email=email)
        wanted = {name: value or None for name, value in given.items() if value is not None}
        await self._send(ask("setActor", ignore, {"input: SetActorInput!": {"urn": urn, **wanted}}, mutation=True))

    async def link(self, actor_urn: str, subject: str | None, *, issuer: str | None = None) -> None:
        """Link an actor to a person of the identity provider, by the person's `sub`; None removes the link."""
        wanted = named(actor_urn=actor_urn, subject=subject, issuer=issuer)
        await self._send(ask("linkActor", require_true, {"input: LinkActorInput!": wanted}, mutation=True))

    async def suspend(self, urn: str) -> None:
        """Suspend an actor: the server rejects its requests and all its tokens."""
        await self._set_status(urn, "SUSPENDED")

    async def resume(self, urn: str) -> None:
        """End the suspension of an actor."""
        await self._set_status(urn, "ACTIVE")

    async def _set_status(self, urn: str, status: str) -> None:
        variables = {"urn: String!": urn, "status: CorpUserStatus!": status}
        await self._send(ask("updateUserStatus", ignore, variables, mutation=True))

    async def offboard(
        self, urn: str, *, dry_run: bool = True, revoke_tokens_for_others: bool = False
    ) -> OffboardingReport:
        """Suspend an actor, revoke its tokens, end its sessions and remove it from its groups. A dry run, the default,
        only reports what there is. `revoke_tokens_for_others` also revokes tokens that the actor created for others.
        """
        wanted = named(urn=urn, dry_run=dry_run, revoke_tokens_for_others=revoke_tokens_for_others)
        variables = {"input: OffboardActorInput!": wanted}
        return await self._send(ask("offboardActor", OffboardingReport, variables, mutation=True, changes=not dry_run))


class AsyncAccounts(AsyncNamespace):
    """Service accounts: actors for programs."""

    async def create(
        self, display_name: str, *, id: str | None = None, description: str | None = None
    ) -> ServiceAccountInfo:
        """Create a service account, whose urn ends with `id` if that is given. `tokens.create` creates tokens for its
        urn. Needs Manage Service Accounts.
        """
        wanted = named(id=id, display_name=display_name, description=description)
        variables = {"input: CreateServiceAccountInput!": wanted}
        return await self._send(ask("createServiceAccount", ServiceAccountInfo, variables, mutation=True))

    def list(self, *, query: str | None = None, page_size: int = PAGE_SIZE) -> AsyncResults[ServiceAccountInfo]:
        """List service accounts, all or those with `query` in their name or urn."""
        listed = ("listServiceAccounts", "serviceAccounts", ServiceAccountInfo, "ListServiceAccountsInput")
        return self._list(*listed, page_size, query=query)

    async def get(self, urn: str) -> ServiceAccountInfo:
        """Get a service account."""
        return await self._send(ask("getServiceAccount", ServiceAccountInfo, {"urn: String!": urn}))

    async def delete(self, urn: str) -> None:
        """Delete a service account and revoke its tokens. Its urn is never used again."""
        await self._send(ask("deleteServiceAccount", require_true, {"urn: String!": urn}, mutation=True))


class AsyncGroups(AsyncNamespace):
    """Groups and their members."""

    def list(self, *, page_size: int = PAGE_SIZE) -> AsyncResults[GroupInfo]:
        """List groups."""
        return self._list("listGroups", "groups", GroupInfo, "ListGroupsInput!", page_size)

    async def get(self, urn: str) -> GroupInfo:
        """Get a group."""
        return await self._send(ask("getGroup", GroupInfo, {"urn: String!": urn}))

    async def create(self, name: str, *, id: str | None = None, description: str | None = None) -> str:
        """Create a group and return its urn, which ends with `id` if that is given."""
        variables = {"input: CreateGroupInput!": named(id=id, name=name, description=description)}
        return await self._send(ask("createGroup", str, variables, mutation=True))

    async def delete(self, urn: str) -> None:
        """Delete a group and its memberships."""
        await self._send(ask("removeGroup", require_true, {"urn: String!": urn}, mutation=True))

    def members(self, group_urn: str, *, page_size: int = PAGE_SIZE) -> AsyncResults[UserInfo]:
        """List the members of a group."""
        listed = ("listGroupMembers", "members", UserInfo, "ListGroupMembersInput!")
        return self._list(*listed, page_size, groupUrn=group_urn)

    async def add_members(self, group_urn: str, user_urns: Iterable[str]) -> None:
        """Add users to a group."""
        await self._change_members("addGroupMembers", group_urn, user_urns)

    async def remove_members(self, group_urn: str, user_urns: Iterable[str]) -> None:
        """Remove users from a group."""
        await self._change_members("removeGroupMembers", group_urn, user_urns)

    async def _change_members(self, call: str, group_urn: str, user_urns: Iterable[str]) -> None:
        wanted = {"groupUrn": group_urn, **word_lists(user_urns=user_urns)}
        await self._send(ask(call, require_true, {"input: GroupMembersInput!": wanted}, mutation=True))


class AsyncSessions(AsyncNamespace):
    """Console sessions."""

    def list(
        self, actor_urn: str | None = None, *, all: bool = False, page_size: int = PAGE_SIZE
    ) -> AsyncResults[SessionInfo]:
        """List the console sessions of an actor, or of all actors; without either, of the caller."""
        listed = ("listSessions", "sessions", SessionInfo, "ListSessionsInput")
        return self._list(*listed, page_size, key=("id",), actorUrn=actor_urn, all=all)

    async def end(self, id: str) -> None:
        """End a console session."""
        await self._send(ask("endSession", require_true, {"id: String!": id}, mutation=True))


class AsyncMailPreferences(AsyncNamespace):
    """The kinds of mail that the caller gets."""

    async def list(self) -> tuple[MailPreference, ...]:
        """Get the kinds of mail, and which of them the caller wants."""
        return await self._send(ask_tuple("mailPreferences", MailPreference))

    async def update(self, off: Iterable[str]) -> None:
        """Get every kind of mail but these."""
        variables = {"off: [String!]!": as_list("off", off)}
        await self._send(ask("setMailPreferences", ignore, variables, selected="kind", mutation=True))
