"""Tokens created, derived, rotated and revoked through HTTP."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.server import ADMIN, GENERATE, GraphQLRefused, Server

FIELDS = """id name actorUrn ownerUrn status tokenType createdAt expiresAt revokedAt scopes audience allowedNetworks
  parentId createdWith replaces replacedBy replacedAt awaitsFirstUse expiresAtOnceUsed"""
MADE = f"{{ accessToken metadata {{ {FIELDS} }} }}"
CREATE = f"mutation ($input: GetAccessTokenInput!) {{ made: createAccessToken(input: $input) {MADE} }}"
DERIVE = f"mutation ($input: DeriveAccessTokenInput!) {{ made: deriveAccessToken(input: $input) {MADE} }}"
ROTATE = f"""mutation ($id: String!, $overlap: String, $grace: String) {{
  made: rotateAccessToken(tokenId: $id, overlap: $overlap, grace: $grace) {MADE} }}"""
REVOKE = "mutation ($id: String!, $cascade: Boolean) { revokeAccessToken(tokenId: $id, cascade: $cascade) }"
REVOKE_MANY = """mutation ($input: RevokeAccessTokensInput!) { revokeAccessTokens(input: $input) {
  dryRun count digest revokedAt actors { actorUrn count } } }"""
GET = f"query ($id: String!) {{ getAccessToken(id: $id) {{ {FIELDS} }} }}"
ACCOUNT = "{ urn type name displayName description createdBy createdAt updatedAt status }"
CREATE_ACCOUNT = f"mutation ($input: CreateServiceAccountInput!) {{ createServiceAccount(input: $input) {ACCOUNT} }}"
GET_ACCOUNT = f"query ($urn: String!) {{ getServiceAccount(urn: $urn) {ACCOUNT} }}"
LIST_ACCOUNTS = f"""query ($input: ListServiceAccountsInput) {{ listServiceAccounts(input: $input) {{
  start count total serviceAccounts {ACCOUNT} }} }}"""
DELETE_ACCOUNT = "mutation ($urn: String!) { deleteServiceAccount(urn: $urn) }"

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class HeldToken:
    """A token with its metadata, as its holder has it."""

    token: str
    metadata: dict[str, Any]

    @property
    def id(self) -> str:
        token_id: str = self.metadata["id"]
        return token_id

    def __getitem__(self, name: str) -> Any:
        return self.metadata[name]


class LifecycleClient:
    def __init__(self, server: Server, *, bearer: str | None = None) -> None:
        self.server = server
        self._admin: dict[str, Any] = {"actor": ADMIN} if bearer is None else {"token": bearer}

    def new_actor(self, *rights: str) -> str:
        """A new actor with these privileges and scopes."""
        urn = f"urn:li:corpuser:life-{next(_numbers)}"
        self.ask(
            "mutation ($input: PolicyUpdateInput!) { createPolicy(input: $input) }",
            {
                "input": {
                    "type": "PLATFORM",
                    "name": "life",
                    "state": "ACTIVE",
                    "privileges": [right for right in rights or (GENERATE,) if right.isupper()],
                    "scopes": [right for right in rights if not right.isupper()],
                    "actors": {"users": [urn]},
                }
            },
        )
        return urn

    def ask(self, query: str, variables: Mapping[str, Any] | None = None, **how: Any) -> Any:
        return self.server.ask(query, variables, **{**({} if _says_who(how) else self._admin), **how})

    def create(self, of: str, *, key: str | None = None, **wanted: Any) -> HeldToken:
        """Create a token for this actor with `token` as bearer, by default as the admin."""
        how: dict[str, Any] = {name: wanted.pop(name) for name in ("token", "actor") if name in wanted}
        given = {"type": "PERSONAL", "actorUrn": of, "name": "test", **wanted}
        if "durationIso" not in given:
            given.setdefault("duration", "ONE_HOUR")
        return self._made(CREATE, {"input": given}, how, key)

    def derive(self, token: str, *, key: str | None = None, **wanted: Any) -> HeldToken:
        return self._made(DERIVE, {"input": {"name": "derived", **wanted}}, {"token": token}, key)

    def rotate(
        self,
        held: HeldToken,
        *,
        overlap: str | None = None,
        grace: str | None = None,
        key: str | None = None,
        token: str | None = None,
    ) -> HeldToken:
        wanted = {"id": held.id, "overlap": overlap, "grace": grace}
        return self._made(ROTATE, wanted, {"token": token or held.token}, key)

    def revoke(self, held: HeldToken, *, cascade: bool | None = None, **how: Any) -> None:
        assert self.ask(REVOKE, {"id": held.id, "cascade": cascade}, **how) == {"revokeAccessToken": True}

    def revoke_many(self, *, dry: bool = False, how: Mapping[str, Any] | None = None, **wanted: Any) -> Any:
        return self.ask(REVOKE_MANY, {"input": {"dryRun": dry, **wanted}}, **(how or {}))["revokeAccessTokens"]

    def record(self, held: HeldToken) -> Any:
        return self.ask(GET, {"id": held.id})["getAccessToken"]

    def auth(self, held: HeldToken | str, query: str = "", **headers: str) -> httpx.Response:
        token = held if isinstance(held, str) else held.token
        return self.server.http.get(f"/auth{query}", headers={"Authorization": f"Bearer {token}", **headers})

    def is_accepted(self, held: HeldToken) -> bool:
        """Whether the token is accepted; this uses it."""
        status = self.auth(held).status_code
        assert status in (204, 401)
        return status == 204

    def new_account(self, name: str = "a program", **how: Any) -> Any:
        return self.ask(CREATE_ACCOUNT, {"input": {"displayName": name}}, **how)["createServiceAccount"]

    def _made(self, query: str, variables: Mapping[str, Any], how: Mapping[str, Any], key: str | None) -> HeldToken:
        headers = {} if key is None else {"Idempotency-Key": key}
        made = self.ask(query, variables, headers=headers, **how)["made"]
        return HeldToken(made["accessToken"], made["metadata"])


def _says_who(how: Mapping[str, Any]) -> bool:
    return "token" in how or "actor" in how


def reason_of(refusal: GraphQLRefused) -> tuple[int, str, str | None]:
    told = refusal.errors[0]["extensions"]
    return told["code"], told["reason"], told.get("field")
