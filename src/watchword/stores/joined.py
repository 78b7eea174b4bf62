"""The store over a database: every transaction, written once for SQLite and PostgreSQL.

Every method guarantees:

- A read sees everything that any process committed before the read began, and nothing else.
- A write is durable when it returns. It re-checks its precondition in its own transaction and raises `Stale` if the
  bearer is no longer live, the actor is suspended, or the policies have another version.
- A change and its event are one transaction.
- A store that cannot answer in time raises `Fault(STORE_UNAVAILABLE)`, and nothing was changed; or
  `Fault(OUTCOME_UNKNOWN)` if it cannot tell.
"""

from abc import abstractmethod

from watchword.access.actor_store import ActorStore
from watchword.access.group_store import GroupStore
from watchword.access.policy_store import PolicyStore
from watchword.accounts.store import AccountStore
from watchword.declared.store import DeclaredSetStore
from watchword.index.store import OperationStore
from watchword.journal.store import EventStore
from watchword.notices.mail_store import MailStore
from watchword.notices.webhook_store import WebhookStore
from watchword.retention.run_store import RetentionRunStore
from watchword.retention.store import RetentionStore
from watchword.signin.device_store import DeviceStore
from watchword.signin.session_store import SessionStore, end_sessions
from watchword.tokens.counts_store import TokenCountStore, UsageStore
from watchword.tokens.keys_store import KeyStore
from watchword.tokens.store import ExpiryStore, TokenStore


class Store(
    TokenStore,
    TokenCountStore,
    UsageStore,
    AccountStore,
    SessionStore,
    DeviceStore,
    PolicyStore,
    GroupStore,
    DeclaredSetStore,
    ActorStore,
    KeyStore,
    OperationStore,
    RetentionRunStore,
    RetentionStore,
    WebhookStore,
    ExpiryStore,
    MailStore,
    EventStore,
):
    """Each database adds what is abstract: verification, sessions and searches, for speed."""

    @property
    @abstractmethod
    def timeline(self) -> int:
        """Of PostgreSQL's primary: each promotion of a standby begins a new one. 0 on SQLite."""

    @abstractmethod
    async def probe(self) -> None:
        """Check that the store can be written to."""

    @abstractmethod
    async def close(self) -> None: ...

    ends_with_actor = (end_sessions,)
