"""Minting: a token is signed and kept, once; asked for again under the same key it is signed again, and is the same."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

from watchword.domain.actors import WritePrecondition
from watchword.domain.errors import Stale
from watchword.domain.idempotency import (
    IdempotencyRecord,
    IdempotentRequest,
    other_request,
    signing_key_gone,
    token_ended,
)
from watchword.domain.lifetimes import Lifetimes
from watchword.domain.ports import Claims, Clock, Issue, Repeated, TokenSigner, TokenStore
from watchword.domain.secret import Secret
from watchword.domain.token_limits import Limits
from watchword.domain.tokens import TokenRecord, TokenType, token_id


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """The one moment at which token and record are together."""

    token: Secret[str]
    record: TokenRecord


@dataclass(frozen=True, slots=True)
class TokenRules:
    lifetimes: Lifetimes
    max_live: int


@dataclass(frozen=True, slots=True)
class Span:
    """How long a token lives; a successor ends early until it was used."""

    expires_at: int | None
    full_end: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A token to be made: all of its record but what is known only when it is signed."""

    type: TokenType
    name: str
    description: str | None
    actor_urn: str
    owner_urn: str
    limits: Limits
    span: Callable[[int], Span]
    """By the moment at which it is made."""
    parent: str | None = None
    root: str | None = None
    replaces: str | None = None
    grace: int | None = None
    ends_by: int | None = None
    """When it must end at the latest."""

    def is_as(self, record: TokenRecord, end: int | None) -> bool:
        """Whether a token that was made before is one that this draft could give."""
        return (record.limits, record.parent, record.replaces) == (self.limits, self.parent, self.replaces) and (
            self.ends_by is None or (end is not None and end <= self.ends_by)
        )


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked under an Idempotency-Key, if it was under one, and by which credential."""

    key: str | None = None
    content: Mapping[str, Any] | None = None
    credential: str = ""


UNKEYED = Request()

Add = Callable[[WritePrecondition, TokenRecord, Issue], Awaitable[None]]


class Minting:
    def __init__(
        self,
        store: TokenStore,
        signer: TokenSigner,
        salt: Secret[bytes],
        rules: TokenRules,
        clock: Clock,
        issued: Callable[[int], None],
    ) -> None:
        self._store = store
        self._signer = signer
        self._salt = salt
        self.rules = rules
        self._clock = clock
        self._issued = issued

    async def make(self, precondition: WritePrecondition, draft: Draft, request: Request, add: Add) -> CreatedToken:
        """Sign and keep, by `add`; or give again what was made under this key."""
        keyed = None
        if request.key is not None:
            keyed = IdempotentRequest(
                self._salt, precondition.actor, request.key, request.content or {}, request.credential
            )
            kept = await self._store.get_idempotency_record(keyed.actor, keyed.digest)
            if kept is not None:
                return await self._again(precondition, draft, keyed, kept)
        now = self._clock()
        span = draft.span(now)
        end = span.expires_at if draft.grace is None else span.full_end
        jti = None if keyed is None else keyed.jti()
        signed = self._signer.sign(Claims(draft.actor_urn, now, end, draft.limits, jti))
        record = TokenRecord(
            id=token_id(signed.token.reveal().encode(), self._salt),
            type=draft.type,
            name=draft.name,
            description=draft.description,
            actor_urn=draft.actor_urn,
            owner_urn=draft.owner_urn,
            created_at=now,
            expires_at=span.expires_at,
            minted_with=precondition.bearer_id,
            limits=draft.limits,
            parent=draft.parent,
            root=draft.root,
            replaces=draft.replaces,
            grace=draft.grace,
            full_end=span.full_end,
        )
        retry = None if keyed is None else IdempotencyRecord(keyed.actor, keyed.digest, signed.kid, record.id, now, end)
        try:
            await add(precondition, record, Issue(signed.kid, self.rules.max_live, retry))
        except Stale:
            await self._signer.refresh()
            raise
        except Repeated:
            raise Stale from None  # the next look finds what the quicker one made
        self._issued(1)
        return CreatedToken(signed.token, record)

    async def _again(
        self, precondition: WritePrecondition, draft: Draft, keyed: IdempotentRequest, kept: IdempotencyRecord
    ) -> CreatedToken:
        """The token that was made under this key, signed once more, for the credential it was made with. It must be
        what that one would be given now. Leaves an event before it is handed over.
        """
        claims = Claims(draft.actor_urn, kept.created_at, kept.expires_at, draft.limits, keyed.jti())
        signed = await self._signer.sign_again(claims, kept.kid)
        if signed is None:
            raise signing_key_gone()
        if not compare_digest(token_id(signed.token.reveal().encode(), self._salt), kept.token_id):
            raise other_request()
        record = await self._store.get_token(kept.token_id)
        if record is None or not record.is_live(self._clock()):
            raise token_ended()
        if not draft.is_as(record, kept.expires_at):
            raise other_request()
        if not await self._store.note_replay(precondition, record):
            raise token_ended()
        return CreatedToken(signed.token, record)
