"""The Python client of Watchword: everything that the server's API offers, typed.

    from watchword.client import Client, TokenFilter

    with Client("https://tokens.example.org", token=...) as watchword:
        new = watchword.tokens.create("urn:li:corpuser:alice", "laptop", duration="ONE_WEEK")
        for token in watchword.tokens.list(TokenFilter("actorUrn", "urn:li:corpuser:alice")):
            print(token.name, token.expires_at)

`AsyncClient` has the same methods for asyncio. `watchword.client.errors` shows the tree of errors, and
`watchword.client.middleware` protects an ASGI application.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# ruff: noqa: F403, F405 - `__all__` selects the names
if TYPE_CHECKING:
    from watchword.basics.secret import Secret
    from watchword.basics.times import Duration
    from watchword.client.answers import *
    from watchword.client.asynchronous.client import AsyncClient
    from watchword.client.asynchronous.lists import AsyncResults
    from watchword.client.errors import *
    from watchword.client.inputs import DeclaredAccountInfo, DeclaredGroupInfo, DeclaredPolicyInfo, TokenFilter
    from watchword.client.records import DeviceLogin, PolicyActors, ServerInfo, VerifiedToken
    from watchword.client.requests import ResultPage
    from watchword.client.synchronous.client import Client
    from watchword.client.synchronous.lists import Results
    from watchword.client.token_files import RotatedFile, TokenFile, rotate_file

__all__ = [
    "ActorIdentity", "ActorInfo", "ActorSummary", "ActorTokenCount", "AppliedPolicies", "AsyncClient",
    "AsyncResults", "BadRequest", "Client", "Conflict", "DayCountInfo", "DeclaredAccountInfo", "DeclaredGroupInfo",
    "DeclaredMembership", "DeclaredPolicyInfo", "DeviceLogin", "Duration", "EngineTaskInfo", "EntityDiff",
    "EventAction", "EventInfo", "FormerMembership", "GrantedActors", "GroupInfo", "HeldSeries", "ImportStatusInfo",
    "IndexInfo", "MailPreference", "NewToken", "NewWebhook", "NotFound", "OffboardedTokens", "OffboardingReport",
    "OffboardingResult", "OffboardingSuspension", "OperationInfo", "OverviewInfo", "PlannedSpan", "PolicyActors",
    "PolicyDiff", "PolicyGrant", "PolicyInfo", "PostCheckInfo", "PrivilegeDescription", "PrivilegeExplanation",
    "PrivilegeHolder", "ProfileError", "RequestRejected", "ResourceDiff", "ResourceInfo", "ResultPage", "Results",
    "RetentionHold", "RetentionRuleDiff", "RetentionRuleInfo", "RetentionRunInfo", "RevocationPlan",
    "RevocationReceipt", "RotatedFile", "Secret", "SeriesPlanInfo", "SeriesSize", "ServerError", "ServerInfo",
    "ServiceAccountInfo", "SessionInfo", "TaskCounters", "TaskInfo", "Throttled", "TimeSpan", "TimeseriesHistogram",
    "TokenDetails", "TokenFile", "TokenFilter", "TokenInfo", "TruncationPlan", "Unauthenticated", "Unauthorized",
    "Unavailable", "UnexpectedAnswer", "Unreachable", "UserInfo", "VerifiedToken", "WatchwordError",
    "WebhookAttempt", "WebhookDelivery", "WebhookDiff", "WebhookInfo", "WebhookReplay", "rotate_file",
]  # fmt: skip

# Names are loaded when they are first used, the modules without httpx first: the command line reads profiles at each
# start, and httpx takes most of the time to load.
_MODULES = [
    *(f"watchword.basics.{name}" for name in ("times", "secret")),
    *(f"watchword.client.{name}" for name in ("errors", "records", "inputs", "answers", "requests")),
    *(f"watchword.client.{name}" for name in ("synchronous.lists", "synchronous.client", "token_files")),
    *(f"watchword.client.asynchronous.{name}" for name in ("lists", "client")),
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in map(import_module, _MODULES):
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
