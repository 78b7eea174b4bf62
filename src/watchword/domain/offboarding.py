"""Offboarding an actor: its tokens, accounts, groups and policies, and what was revoked."""

from dataclasses import dataclass

from watchword.domain.accounts import ServiceAccount
from watchword.domain.actors import ActorHoldings, ActorState
from watchword.domain.bulk_revocation import Receipt
from watchword.domain.policies import Policy
from watchword.domain.ports import Page

MAX_SHOWN = 100
"""Tokens and service accounts listed in a plan."""
MAX_IDS = 1_000
"""Revoked token ids listed in a receipt; the digest covers all of them."""


@dataclass(frozen=True, slots=True)
class OffboardingPlan:
    state: ActorState
    holdings: ActorHoldings
    tokens: Page
    """Live tokens of the actor."""
    minted: Page
    """Live tokens that the actor created for others, and may know."""
    accounts: tuple[ServiceAccount, ...]
    """Accounts that the actor created and that still exist."""
    groups: tuple[str, ...]
    policies: tuple[Policy, ...]
    """Policies that name the actor."""


@dataclass(frozen=True, slots=True)
class RevokedTokens:
    receipt: Receipt
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OffboardingReceipt:
    at: int
    tokens: RevokedTokens
    minted: RevokedTokens | None
    """None: not revoked."""
    sessions: int
    groups: tuple[str, ...]
