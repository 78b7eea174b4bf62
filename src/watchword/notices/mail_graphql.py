"""GraphQL resolvers for the preferences about mails."""

from typing import Any

from watchword.authority.callers import Grant
from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json
from watchword.notices.mail_rules import MailKind, parse_kind
from watchword.notices.mail_service import MailPreferences


async def mail_preferences(_: Any, info: Info) -> list[Json]:
    preferences = info.context.of(MailPreferences)
    return await _preferences_json(preferences, await preferences.authorize(info.context.caller))


async def set_mail_preferences(_: Any, info: Info, off: list[str]) -> list[Json]:
    preferences = info.context.of(MailPreferences)
    grant = await preferences.authorize_change(info.context.caller)
    await preferences.set_off(grant, frozenset(parse_kind(word, "off") for word in off))
    return await _preferences_json(preferences, grant)


async def _preferences_json(preferences: MailPreferences, grant: Grant) -> list[Json]:
    off = await preferences.off(grant)
    return [
        {"kind": kind.value, "description": kind.meaning, "enabled": kind not in off, "sent": kind in preferences.sent}
        for kind in MailKind
    ]
