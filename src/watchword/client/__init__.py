"""The Python client of Watchword: everything that the server's API offers, typed.

    from watchword.client import Client, TokenFilter

    with Client("https://tokens.example.org", token=...) as watchword:
        new = watchword.create_token("urn:li:corpuser:alice", "laptop", duration="ONE_WEEK")
        for token in watchword.tokens(TokenFilter("actorUrn", "urn:li:corpuser:alice")):
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
    from watchword.client.actors import *
    from watchword.client.api import ServerInfo
    from watchword.client.audit import *
    from watchword.client.errors import *
    from watchword.client.http_clients import AsyncClient, Client
    from watchword.client.operations import *
    from watchword.client.policies import *
    from watchword.client.records import UserInfo
    from watchword.client.requests import ResultPage
    from watchword.client.retention import *
    from watchword.client.token_files import RotatedFile, TokenFile, rotate_file
    from watchword.client.tokens import *

__all__ = [
    "ActorIdentity", "ActorInfo", "ActorSummary", "ActorTokenCount", "AppliedPolicies", "AsyncClient", "BadRequest",
    "Client", "Conflict", "DayCountInfo", "DeclaredAccountInfo", "DeclaredGroupInfo", "DeclaredMembership",
    "DeclaredPolicyInfo", "DeviceLogin", "Duration", "EngineTaskInfo", "EntityDiff", "EventAction", "EventInfo",
    "FormerMembership", "GrantedActors", "GroupInfo", "HeldSeries", "ImportStatusInfo", "IndexInfo",
    "MailPreference", "NewToken", "NewWebhook", "NotFound", "OffboardedTokens", "OffboardingReport",
    "OffboardingResult", "OffboardingSuspension", "OperationInfo", "OverviewInfo", "PlannedSpan", "PolicyActors",
    "PolicyDiff", "PolicyGrant", "PolicyInfo", "PostCheckInfo", "PrivilegeDescription", "PrivilegeExplanation",
    "PrivilegeHolder", "ProfileError", "RequestRejected", "ResourceDiff", "ResourceInfo", "ResultPage",
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
    *(f"watchword.client.{name}" for name in ("errors", "records", "tokens", "policies", "actors", "audit")),
    *(
        f"watchword.client.{name}"
        for name in ("operations", "retention", "requests", "api", "http_clients", "token_files")
    ),
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in map(import_module, _MODULES):
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
