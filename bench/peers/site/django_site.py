"""A Django site of one package, `knox` or `oauth2_provider`, as its documentation sets it up; run in the environment of
the peers. `python django_site.py FILE` makes the database and writes whom there is to the file.

BENCH_PEER: the package. BENCH_DATABASE: a file, or what Django calls the name, host, port and user of a PostgreSQL.
"""

import json
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import include, path

PEER = os.environ["BENCH_PEER"]
WHERE = json.loads(os.environ["BENCH_DATABASE"])
DURABLE = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"

if isinstance(WHERE, str):
    DATABASE = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": WHERE,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": DURABLE},
    }
else:
    DATABASE = {"ENGINE": "django.db.backends.postgresql", **WHERE}

settings.configure(
    SECRET_KEY=os.environ["BENCH_SECRET"],
    DEBUG=False,
    ALLOWED_HOSTS=["127.0.0.1"],
    USE_TZ=True,
    ROOT_URLCONF=__name__,
    DATABASES={"default": {**DATABASE, "CONN_MAX_AGE": None}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        *(["rest_framework", "knox"] if PEER == "knox" else ["django.contrib.sessions", "oauth2_provider"]),
    ],
    MIDDLEWARE=[]
    if PEER == "knox"
    else [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    # The session for token pages is in the cookie, so it costs no query.
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": ["knox.auth.TokenAuthentication"],
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    },
    REST_KNOX={"TOKEN_TTL": timedelta(days=1), "AUTH_HEADER_PREFIX": "Bearer"},
    OAUTH2_PROVIDER={
        "SCOPES": {"read": "Read", "introspection": "Introspect"},
        "ACCESS_TOKEN_EXPIRE_SECONDS": 86400,
    },
    LOGGING_CONFIG=None,
)
django.setup()

from django.http import HttpResponse  # noqa: E402 - models are there only now

if PEER == "knox":
    from knox.models import AuthToken
    from knox.views import LoginView, LogoutView
    from rest_framework import generics, serializers, views
    from rest_framework.response import Response

    class Who(views.APIView):
        """Says nothing but that the bearer may pass, as `/auth` does."""

        def get(self, request: Any) -> Any:
            return Response(status=204)

    class TokenSerializer(serializers.ModelSerializer):
        class Meta:
            model = AuthToken
            fields = ("token_key", "created", "expiry")

    class Own(generics.ListAPIView):
        """Knox has no list of its own."""

        serializer_class = TokenSerializer

        def get_queryset(self) -> Any:
            return AuthToken.objects.filter(user=self.request.user).order_by("-expiry")[:100]

    urlpatterns = [
        path("who", Who.as_view()),
        path("own", Own.as_view()),
        path("login", LoginView.as_view()),
        path("logout", LogoutView.as_view()),
    ]
else:
    from oauth2_provider.views.generic import ProtectedResourceView

    class Bearer(ProtectedResourceView):
        """Says nothing but that the bearer may pass, as `/auth` does."""

        def get(self, request: Any) -> Any:
            return HttpResponse(status=204)

    urlpatterns = [
        path("who", Bearer.as_view()),
        path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    ]

application = get_wsgi_application()


def fill(owners: int, tokens: int, secret: str) -> dict[str, list[str]]:
    """Create this many tokens of this many users with the package's own models. The users have no passwords."""
    from django.contrib.auth.models import User
    from django.db import transaction
    from django.utils import timezone

    with transaction.atomic():
        users = User.objects.bulk_create([User(username=f"owner{n}", password="!") for n in range(owners)])
        fill_peer = _fill_knox if PEER == "knox" else _fill_oauth
        texts = fill_peer(users, tokens, secret, timezone.now() + timedelta(days=1))
    return {"tokens": texts, "sessions": [] if PEER == "knox" else [_session(user) for user in users]}


def _fill_knox(users: list[Any], tokens: int, secret: str, end: datetime) -> list[str]:
    from knox.models import get_digest_token
    from knox.settings import CONSTANTS

    made = [get_digest_token() for _ in range(tokens)]
    AuthToken.objects.bulk_create(
        AuthToken(digest=digest, token_key=text[: CONSTANTS.TOKEN_KEY_LENGTH], user=users[n % len(users)], expiry=end)
        for n, (digest, text) in enumerate(made)
    )
    return [text for _, text in made]


def _fill_oauth(users: list[Any], tokens: int, secret: str, end: datetime) -> list[str]:
    from oauth2_provider.models import AccessToken, Application
    from oauthlib.common import generate_token

    # A hashed secret would cost a quarter of a second at each request of the client.
    application = Application.objects.create(
        name="bench",
        client_id="bench",
        client_secret=secret,
        hash_client_secret=False,
        client_type=Application.CLIENT_CONFIDENTIAL,
        authorization_grant_type=Application.GRANT_CLIENT_CREDENTIALS,
    )
    rows = [
        AccessToken(
            token=generate_token(), application=application, user=users[n % len(users)], expires=end, scope="read"
        )
        for n in range(tokens)
    ]
    for row in rows:  # which saving one by one would do
        row.token_checksum = AccessToken._meta.get_field("token_checksum").pre_save(row, add=True)  # noqa: SLF001 - it is public
    AccessToken.objects.bulk_create(rows)
    return [row.token for row in rows]


def _session(user: Any) -> str:
    """Return the cookie of a logged-in user."""
    from importlib import import_module

    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY

    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.save()
    return f"{settings.SESSION_COOKIE_NAME}={store.session_key}"


if __name__ == "__main__":
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    told = json.loads(sys.argv[2])
    Path(sys.argv[1]).write_text(json.dumps(fill(**told)))
