# Generated. Change asynchronous/tokens.py, then run: make reference
"""Tokens: create, derive, rotate, find, verify and revoke them."""

import secrets
from collections.abc import Iterable
from datetime import timedelta

from watchword.basics.names import is_account
from watchword.basics.secret import Secret
from watchword.client.answers import (
    ImportStatusInfo,
    NewToken,
    OverviewInfo,
    RevocationPlan,
    RevocationReceipt,
    TokenDetails,
    TokenInfo,
)
from watchword.client.inputs import DEVICE_CLIENT, Lifetime, TokenFilter, lifetime, reveal, selected_tokens, token_list
from watchword.client.records import DeviceLogin, Json, VerifiedToken, read_device_login, read_identity
from watchword.client.requests import (
    ApiRequest,
    ResultPage,
    as_list,
    ask,
    ask_page,
    ignore,
    iso,
    named,
    post_form,
    require_true,
    word_lists,
)
from watchword.client.synchronous.lists import Results
from watchword.client.synchronous.namespace import PAGE_SIZE, Namespace


class Tokens(Namespace):
    """Create, find, rotate, verify and revoke tokens."""

    def create(
        self,
        actor_urn: str,
        name: str,
        *,
        duration: Lifetime,
        description: str | None = None,
        scopes: Iterable[str] | None = None,
        audience: Iterable[str] | None = None,
        allowed_networks: Iterable[str] | None = None,
        idempotency_key: str | None = None,
    ) -> NewToken:
        """Create a token for a user or service account. `duration` is a timedelta, or text such as 90d, 12h, ONE_WEEK
        or P3D. `scopes`, `audience` and `allowed_networks` (CIDR) limit the token; None sets no limit, an empty list
        allows nothing. The same `idempotency_key` returns the same token for a day.
        """
        wanted = {
            "type": "SERVICE_ACCOUNT" if is_account(actor_urn) else "PERSONAL",
            **named(actor_urn=actor_urn, name=name, description=description),
            **lifetime(duration),
            **word_lists(scopes=scopes, audience=audience, allowed_networks=allowed_networks),
        }
        return self._create("createAccessToken", {"input: GetAccessTokenInput!": wanted}, idempotency_key)

    def derive(
        self,
        name: str,
        *,
        duration: Lifetime | None = None,
        description: str | None = None,
        scopes: Iterable[str] | None = None,
        audience: Iterable[str] | None = None,
        allowed_networks: Iterable[str] | None = None,
        idempotency_key: str | None = None,
    ) -> NewToken:
        """Derive a token from the client's token. It can do no more than its parent, and ends with it. Limits and
        duration that are not given are those of the parent.
        """
        wanted = {
            **named(name=name, description=description),
            **({} if duration is None else lifetime(duration)),
            **word_lists(scopes=scopes, audience=audience, allowed_networks=allowed_networks),
        }
        return self._create("deriveAccessToken", {"input: DeriveAccessTokenInput!": wanted}, idempotency_key)

    def rotate(
        self,
        token_id: str,
        *,
        overlap: timedelta | str | None = None,
        grace: timedelta | str | None = None,
        idempotency_key: str | None = None,
    ) -> NewToken:
        """Create the successor of a token, by id or urn, with the same name, actor and limits. It must be used within
        the overlap (default: a day). The old token expires after the grace period (default: 5 minutes) that follows the
        first use. To rotate a token in a file, use `rotate_file`.
        """
        variables = {
            "tokenId: String!": token_id,
            "overlap: String": iso("overlap", overlap),
            "grace: String": iso("grace", grace),
        }
        return self._create("rotateAccessToken", variables, idempotency_key)

    def _create(self, call: str, variables: Json, key: str | None) -> NewToken:
        """Under an Idempotency-Key, so that it may be retried: the server answers with the same token again."""
        return self._send(ask(call, NewToken, variables, mutation=True, key=key or secrets.token_hex(16)))

    def page(
        self,
        *filters: TokenFilter,
        start: int = 0,
        page_size: int = 20,
        sort: str = "expiresAt",
        descending: bool = True,
    ) -> ResultPage[TokenInfo]:
        """Get one page of the tokens that meet all conditions, and their number. Tokens of other actors need Manage
        All Access Tokens.
        """
        wanted = {"start": start, "count": page_size, **token_list(filters, sort, descending=descending)}
        return self._send(ask_page("listAccessTokens", "tokens", TokenInfo, "ListAccessTokensInput", wanted))

    def list(
        self, *filters: TokenFilter, sort: str = "expiresAt", descending: bool = True, page_size: int = PAGE_SIZE
    ) -> Results[TokenInfo]:
        """List the tokens that meet all conditions."""
        wanted = token_list(filters, sort, descending=descending)
        listed = ("listAccessTokens", "tokens", TokenInfo, "ListAccessTokensInput")
        return self._list(*listed, page_size, key=("id",), **wanted)

    def get(self, id: str) -> TokenDetails:
        """Get a token's record by id or urn, revoked or not."""
        return self._send(ask("getAccessToken", TokenDetails, {"id: String!": id}))

    def find(self, token: str | Secret[str]) -> TokenDetails:
        """Get the record of a token that the caller has."""
        return self._send(ask("getAccessTokenMetadata", TokenDetails, {"token: String!": reveal(token)}))

    def overview(self, *, all: bool = False) -> OverviewInfo:
        """Get the numbers of the client's own tokens; with `all` of all tokens, for Manage All Access Tokens."""
        return self._send(ask("overview", OverviewInfo, {"input: OverviewInput": {"all": all}}))

    def verify(self) -> VerifiedToken:
        """Verify the client's token as a gateway does. This is a use of the token: it starts the grace period of a
        rotation. A token for another audience than Watchword raises `Unauthorized` with reason `wrong_audience`.
        """
        return self._send(ApiRequest(read_identity, "/auth", read_headers=read_identity))

    def update(self, token_id: str, *, name: str | None = None, description: str | None = None) -> TokenInfo:
        """Change the name or description of a token, by id or urn. One that is not given stays; an empty description is
        removed.
        """
        wanted = {"name": name, "description": description}
        variables = {"tokenId: String!": token_id, "input: UpdateAccessTokenInput!": wanted}
        return self._send(ask("updateAccessToken", TokenInfo, variables, mutation=True))

    def revoke(self, token_id: str, *, cascade: bool = False) -> None:
        """Revoke a token, by id or urn, and those derived from it; with `cascade` also those created with one of them.
        When this returns, no instance accepts any of them.
        """
        variables = {"tokenId: String!": token_id, "cascade: Boolean": cascade}
        self._send(ask("revokeAccessToken", require_true, variables, mutation=True))

    def plan_revocation(
        self, *filters: TokenFilter, ids: Iterable[str] | None = None, all: bool = False, cascade: bool = False
    ) -> RevocationPlan:
        """Count what `revoke_many` would revoke, by actor. Changes nothing."""
        wanted = {**selected_tokens(filters, ids), "all": all, "cascade": cascade, "dryRun": True}
        variables = {"input: RevokeAccessTokensInput!": wanted}
        return self._send(ask("revokeAccessTokens", RevocationPlan, variables, mutation=True, changes=False))

    def revoke_many(
        self,
        *filters: TokenFilter,
        ids: Iterable[str] | None = None,
        all: bool = False,
        cascade: bool = False,
        at_most: int | None = None,
    ) -> RevocationReceipt:
        """Revoke all tokens that meet every condition, or that have one of the ids, at most 100,000 in one step. To
        revoke all tokens there are, set `all`. Tokens of other actors need Manage All Access Tokens. If more than
        `at_most` tokens match, none is revoked and `Conflict` is raised.
        """
        wanted = {**selected_tokens(filters, ids), "all": all, "cascade": cascade, "dryRun": False}
        if at_most is not None:
            wanted["atMost"] = at_most
        variables = {"input: RevokeAccessTokensInput!": wanted}
        return self._send(ask("revokeAccessTokens", RevocationReceipt, variables, mutation=True))

    def revoke_by_possession(self, token: str | Secret[str], *, by_scan: bool = False) -> None:
        """Revoke a token that was found somewhere. Sends no credential. Succeeds too if the token is not one of the
        server's, or is revoked already. `by_scan`: a scan found it; the server tells its owner.
        """
        form = {"token": reveal(token)} | ({"found_by": "scan"} if by_scan else {})
        # Retried like a read: revoking twice does no harm.
        self._send(post_form("/oauth2/revoke", form, ignore, read_headers=ignore))

    def import_status(self) -> ImportStatusInfo:
        """Get what came from DataHub, and how much of it is still in use. Needs Manage All Access Tokens."""
        return self._send(ask("importStatus", ImportStatusInfo))


class DeviceLogins(Namespace):
    """Get a token that a person approves in a browser (device authorization, RFC 8628)."""

    def start(
        self, client_id: str = DEVICE_CLIENT, *, host: str | None = None, scopes: Iterable[str] = ()
    ) -> DeviceLogin:
        """Start: show the person `user_code` and `verification_uri_complete`, then call `poll` every `interval`
        seconds. `host` is a label for the person; `scopes` limit the token. Sends no credential.
        """
        form = {"client_id": client_id, "host": host or "", "scope": " ".join(as_list("scopes", scopes))}
        return self._send(post_form("/oauth2/device_authorization", form, read_device_login))

    def poll(self, device_code: str | Secret[str], client_id: str = DEVICE_CLIENT) -> Secret[str]:
        """Get the token of an approved device authorization, once. `BadRequest` with the reason
        `authorization_pending` or `slow_down` (wait five seconds longer from now on) means: poll again. Other reasons
        are final: `access_denied`, `expired_token`, `invalid_grant`. Sends no credential.
        """
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        form = {"grant_type": grant, "device_code": reveal(device_code), "client_id": client_id}
        request = post_form("/oauth2/token", form, lambda found: Secret(str(found["access_token"])), changes=True)
        return self._send(request)
