"""The Python client: everything the service does over its network address, typed.

    from watchword.client import Client

    with Client("https://tokens.example.org", token=...) as watchword:
        made = watchword.create_token("urn:li:corpuser:alice", "laptop", duration="ONE_WEEK")
        for token in watchword.tokens(Where("actorUrn", "urn:li:corpuser:alice")):
            print(token.name, token.expires)

`AsyncClient` is the same with `await` and `async for`. What can go wrong: `watchword.client.errors`.
"""

from typing import TYPE_CHECKING, Any

from watchword.client.errors import (
    BadRequest,
    Conflict,
    NotFound,
    Refused,
    ServerError,
    Throttled,
    Unauthenticated,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    WatchwordError,
)
from watchword.client.files import RotatedFile, rotate_file
from watchword.client.operation_records import (
    EngineTaskInfo,
    IndexInfo,
    OperationInfo,
    PostCheckInfo,
    TaskCounters,
    TaskInfo,
    TimeseriesHistogram,
    TimeSpan,
    TruncationPlan,
)
from watchword.client.records import (
    ActorInfo,
    ActorSummary,
    ActorTokenCount,
    AppliedPolicies,
    DeclaredPolicy,
    EventAction,
    EventInfo,
    GroupInfo,
    Identity,
    Me,
    NewToken,
    OffboardedTokens,
    OffboardingReport,
    OffboardingResult,
    PolicyActors,
    PolicyDiff,
    PolicyGrant,
    PolicyInfo,
    PrivilegeDescription,
    PrivilegeExplanation,
    RevocationPlan,
    RevocationReceipt,
    ServerInfo,
    ServiceAccountInfo,
    TokenInfo,
)
from watchword.client.sync import Client
from watchword.client.token_calls import Where
from watchword.client.token_files import TokenFile
from watchword.client.walks import ResultPage
from watchword.domain.lifetimes import Duration
from watchword.domain.secret import Secret

if TYPE_CHECKING:
    from watchword.client.asynchronous import AsyncClient

__all__ = [
    "ActorInfo",
    "ActorSummary",
    "ActorTokenCount",
    "AppliedPolicies",
    "AsyncClient",
    "BadRequest",
    "Client",
    "Conflict",
    "DeclaredPolicy",
    "Duration",
    "EngineTaskInfo",
    "EventAction",
    "EventInfo",
    "GroupInfo",
    "Identity",
    "IndexInfo",
    "Me",
    "NewToken",
    "NotFound",
    "OffboardedTokens",
    "OffboardingReport",
    "OffboardingResult",
    "OperationInfo",
    "PolicyActors",
    "PolicyDiff",
    "PolicyGrant",
    "PolicyInfo",
    "PostCheckInfo",
    "PrivilegeDescription",
    "PrivilegeExplanation",
    "Refused",
    "ResultPage",
    "RevocationPlan",
    "RevocationReceipt",
    "RotatedFile",
    "Secret",
    "ServerError",
    "ServerInfo",
    "ServiceAccountInfo",
    "TaskCounters",
    "TaskInfo",
    "Throttled",
    "TimeSpan",
    "TimeseriesHistogram",
    "TokenFile",
    "TokenInfo",
    "TruncationPlan",
    "Unauthenticated",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "WatchwordError",
    "Where",
    "rotate_file",
]


def __getattr__(name: str) -> Any:
    """`AsyncClient` is loaded when it is asked for: asyncio would take a quarter of the time of all this."""
    if name == "AsyncClient":
        from watchword.client.asynchronous import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
