"""Device authorization (RFC 8628): start it, approve or deny it as a signed-in person, and poll for the token.

A token is created at the poll, with the rights that the approving actor has then: as that actor, or with the token of
the session it approved in, whose limits apply. There is none once that session has ended.
"""

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from watchword.authority.callers import Caller, Grant
from watchword.authority.limits import Limits, inherited
from watchword.authority.service import Authority
from watchword.basics.errors import UNAUTHENTICATED, UNAUTHORIZED, Fault, Reason, Subject, too_often
from watchword.basics.names import is_account
from watchword.basics.networks import origin_of, origins_of
from watchword.basics.secret import Secret
from watchword.basics.times import DAY, Clock
from watchword.signin import device_rules as rules
from watchword.signin.device_rules import Device
from watchword.signin.device_store import DeviceStore
from watchword.signin.session_service import Sessions, SignInRate
from watchword.tokens.issue_service import CreatedToken, Lifetime, TokenIssuer
from watchword.tokens.lifetimes import Lifetimes
from watchword.tokens.list_service import ACCOUNTS, MINIMUM
from watchword.tokens.rules import TokenRequest, TokenType

WRONG_CODES = 5
"""How many wrong user codes an actor, and an address, may try at once in one process."""
WRONG_CODE_INTERVAL = 30_000  # milliseconds until it may try one more
_WITHDRAWN = frozenset(
    {Reason.ACTOR_SUSPENDED, Reason.TOO_MANY_TOKENS, Reason.WIDER_THAN_MAKER, Reason.ACCOUNT_NOT_FOUND}
)
"""Why an approved terminal gets no token, besides a lack of rights."""


class StartedDevice(NamedTuple):
    code: Secret[str]
    user_code: str
    seconds: int = rules.CODE_MILLIS // 1_000
    interval: int = rules.INTERVAL // 1_000


class Devices:
    def __init__(
        self,
        store: DeviceStore,
        authority: Authority,
        sessions: Sessions,
        issuer: TokenIssuer,
        salt: Secret[bytes],
        clock: Clock,
        clients: tuple[str, ...],
        days: int,
        lifetimes: Lifetimes,
        new_code: Callable[[], Secret[str]],
    ) -> None:
        self._store = store
        self._authority = authority
        self._sessions = sessions
        self._issuer = issuer
        self._clock = clock
        self._clients = clients
        self.token_seconds = min(days * DAY, lifetimes.longest) // 1_000
        self._new_code = new_code
        self._digest, self._user_digest = rules.code_digests(salt)
        self._tries = SignInRate(clock, WRONG_CODES, WRONG_CODE_INTERVAL)
        # Many people may share an address.
        self._address_tries = SignInRate(clock, 20 * WRONG_CODES, WRONG_CODE_INTERVAL // 20)

    async def start(self, client: str, host: str | None, scopes: tuple[str, ...] | None, peer: str) -> StartedDevice:
        self._check_client(client)
        while True:
            user_code = "".join(secrets.choice(rules.CONSONANTS) for _ in range(rules.USER_CODE))
            started = StartedDevice(self._new_code(), user_code)
            now = self._clock()
            origin, site, network = origins_of(peer)
            device = Device(
                id=self._digest(started.code),
                user_code=self._user_digest(started.user_code),
                client=client,
                host=host,
                scopes=scopes,
                peer=peer,
                origin=origin,
                site=site,
                network=network,
                created_at=now,
                ends_at=now + rules.CODE_MILLIS,
            )
            if await self._store.add_device(device, rules.DeviceLimits()):
                return started

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        """To look a user code up, and to approve or deny it."""
        return self._authority.authorize(caller, MINIMUM)

    async def find(self, grant: Grant, typed: str) -> Device:
        """The pending terminal with this user code. Wrong codes are limited; only they count."""
        grant.expect(MINIMUM)
        code, caller = rules.check_user_code(typed), grant.caller
        address = origin_of(caller.peer)
        try:
            self._tries.check(caller.actor, "")  # an actor without tries uses none of its address
            self._address_tries.take(address, "")
            self._tries.take(caller.actor, "")
        except Fault as fault:
            wait = fault.details["retryAfter"] * 1_000
            raise too_often(Reason.TOO_MANY_CODES, wait, "Too many wrong codes were tried.") from None
        is_wrong = False
        try:
            return await self._store.find_device(self._user_digest(code))
        except Fault as fault:
            is_wrong = fault.reason is Reason.DEVICE_NOT_FOUND
            fault.subject = Subject(caller.actor, None)
            raise
        finally:
            if not is_wrong:
                self._address_tries.give_back(address)
                self._tries.give_back(caller.actor)

    async def decide(self, grant: Grant, typed: str, *, approve: bool) -> Device:
        device = await self.find(grant, typed)
        if approve:
            # Better now than when the terminal polls.
            inherited(grant.caller.limits, Limits(device.scopes))
            grant.policies.require_scopes(grant.caller.actor, grant.caller.snapshot.groups, device.scopes)
        status = rules.DeviceStatus.APPROVED if approve else rules.DeviceStatus.DENIED
        session_id = grant.caller.session_id
        assert session_id is not None, "only a session decides"
        await self._authority.change(grant, self._store.decide_device, device, status, session_id, rules.DeviceLimits())
        return device

    async def poll(self, code: Secret[str], client: str, peer: str, request_id: str) -> CreatedToken:
        """The token, once; until then, why there is none."""
        self._check_client(client)
        device_id = self._digest(code)
        # An unknown code causes no write.
        found = None if await self._store.get_device(device_id) is None else await self._store.poll_device(device_id)
        if found is None or found[0].client != client:
            raise rules.no_grant()
        device, now = found
        if device.ends_at <= now:
            raise Fault(Reason.EXPIRED_TOKEN, "The device code has expired. Start again.")
        if device.is_too_fast(now):
            seconds = device.polled(now).interval // 1_000
            raise Fault(Reason.SLOW_DOWN, f"Poll every {seconds} seconds.")
        match device.status:
            case rules.DeviceStatus.PENDING:
                raise Fault(Reason.AUTHORIZATION_PENDING, "The terminal is not approved yet. Poll again.")
            case rules.DeviceStatus.DENIED:
                raise Fault(Reason.ACCESS_DENIED, "The request was denied in the browser.")
        try:
            return await self._redeem(device, peer, request_id)
        except Fault as fault:
            if fault.kind in (UNAUTHENTICATED, UNAUTHORIZED) or fault.reason in _WITHDRAWN:
                message = f"The request was approved, but the token cannot be created. {fault.message}"
                raise Fault(Reason.ACCESS_DENIED, message) from None
            raise

    async def _redeem(self, device: Device, peer: str, request_id: str) -> CreatedToken:
        session = (await self._sessions.find(str(device.session_id))).session
        caller = await self._authority.approver(session.actor, session.token_id, peer, request_id)
        kind = TokenType.SERVICE_ACCOUNT if is_account(caller.actor) else TokenType.PERSONAL
        new = TokenRequest(kind, caller.actor, device.token_name, None, Limits(device.scopes))
        lifetime = Lifetime(iso=f"PT{self.token_seconds}S")
        grant = await self._authority.authorize(caller, MINIMUM, ACCOUNTS)
        return await self._issuer.create(grant, new, lifetime, add=partial(self._store.redeem_device, device.id))

    def _check_client(self, client: str) -> None:
        if client not in self._clients:
            raise Fault(Reason.INVALID_CLIENT, "client_id must be one that WATCHWORD_DEVICE_CLIENTS names.")
