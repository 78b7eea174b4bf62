"""Offboarding: what an actor has that must be dealt with when it leaves, and what was done about it."""

from dataclasses import dataclass

from watchword.domain.accounts import ServiceAccount
from watchword.domain.actors import ActorHoldings, ActorState
from watchword.domain.bulk_revocation import Receipt
from watchword.domain.policies import Policy
from watchword.domain.ports import Page

MAX_SHOWN = 100
"""Tokens and service accounts that a plan shows one by one."""
MAX_IDS = 1_000
"""Ids of revoked tokens that a receipt lists; its digest is over all of them."""


@dataclass(frozen=True, slots=True)
class OffboardingPlan:
    state: ActorState
    holdings: ActorHoldings
    tokens: Page
    """Its own, that are live."""
    minted: Page
    """Live ones that it made for others. It may know them."""
    accounts: tuple[ServiceAccount, ...]
    """That it made and that were not deleted."""
    groups: tuple[str, ...]
    policies: tuple[Policy, ...]
    """That name it."""


@dataclass(frozen=True, slots=True)
class RevokedTokens:
    receipt: Receipt
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffboardingReceipt:
    at: int
    tokens: RevokedTokens
    minted: RevokedTokens | None
    """None: they were left alone."""
    sessions: int
    groups: tuple[str, ...]
