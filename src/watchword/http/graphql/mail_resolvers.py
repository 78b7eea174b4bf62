"""GraphQL resolvers for mail preferences."""

from typing import Any

from watchword.domain.mail import MailKind, parse_kind
from watchword.http.graphql.context import Info, Json


async def mail_preferences(_: Any, info: Info) -> list[Json]:
    preferences = info.context.services.core.mail_preferences
    off = await preferences.off(info.context.caller)
    return [
        {"kind": kind.value, "description": kind.meaning, "enabled": kind not in off, "sent": kind in preferences.sent}
        for kind in MailKind
    ]


async def set_mail_preferences(_: Any, info: Info, off: list[str]) -> list[Json]:
    preferences, caller = info.context.services.core.mail_preferences, info.context.caller
    grant = await preferences.authorize(caller)
    await preferences.set_off(grant, frozenset(parse_kind(word, "off") for word in off))
    return await mail_preferences(_, info)
