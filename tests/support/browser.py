"""A real Chromium, Debian's own, and pages in it that are watched: what a page must never do fails the test.

Never: an error in the console, an exception that nobody caught, a request to another origin, a breach of the
Content-Security-Policy. A test that provokes one of them says so beforehand, by `allow`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    APIResponse,
    Browser,
    Page,
    Request,
    Response,
    Route,
    expect,
    sync_playwright,
)

from tests.support.console import CONSOLE_HEADER, Console
from tests.support.identity_providers import ProviderUser
from tests.support.profiles import Profile, ProfilePool, ReusableProfile, Theme
from tests.support.server import Server
from tests.support.system import need_program
from tests.support.waiting import SECONDS

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
expect.set_options(timeout=SECONDS * 1_000)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """While it runs, this thread has a running event loop."""
    program = need_program("chromium-headless-shell", "chromium-headless-shell")
    with sync_playwright() as playwright:
        # As in everybody's browser, a page that was left is kept for whoever goes back; Playwright would forbid it.
        browser = playwright.chromium.launch(
            executable_path=program, args=[*ARGUMENTS, *arguments], ignore_default_args=["--disable-back-forward-cache"]
        )
        yield browser
        browser.close()


@dataclass
class Watch:
    """What the pages of one context did that they must not."""

    origin: str
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """`METHOD /path?query` of every request, in their order."""
    allowed: list[str] = field(default_factory=list)

    def allow(self, pattern: str) -> None:
        """Faults that match are what this test is about."""
        self.allowed.append(pattern)

    @property
    def unexpected(self) -> list[str]:
        return [fault for fault in self.faults if not any(re.search(one, fault) for one in self.allowed)]

    def on_page(self, page: Page) -> None:
        page.on("console", lambda message: self._said(message.type, message.text, message.location))
        page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error.name}: {error.message}"))
        page.on("request", lambda request: self._asked(request.method, request.url))
        page.on("crash", lambda _: self.faults.append("the page crashed"))

    def _said(self, kind: str, text: str, where: Any) -> None:
        if kind == "error":
            self.faults.append(f"console: {text} ({where.get('url', '')}:{where.get('lineNumber', '')})")

    def _asked(self, method: str, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("data", "blob", "about"):
            return
        if f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.faults.append(f"foreign request: {method} {url}")
        self.requests.append(f"{method} {parts.path}" + (f"?{parts.query}" if parts.query else ""))


class Window:
    """A browser profile on the console, with its own cookies and its own watch. Its pages share them.

    The profile comes from `pool`. With options of its own (`how`), or without a pool, it is a new one.
    """

    def __init__(
        self,
        browser: Browser,
        console: Console | Server,
        theme: Theme = "light",
        width: int = 1280,
        *,
        pool: ProfilePool | None = None,
        **how: Any,
    ) -> None:
        self.url = console.url
        self.watch = Watch(console.url)
        self._pool = pool
        self._profile: Profile = (
            Profile(browser, self.url, theme, width, **how)
            if pool is None or how
            else pool.lease(self.url, theme, width)
        )
        self._profile.faults = self.watch.faults
        self.context = self._profile.context
        self.context.on("page", self.watch.on_page)

    def sign_in(self, token: str) -> None:
        """As the sign-in view does it, without the view."""
        answer = self.context.request.post(
            "/session", headers={CONSOLE_HEADER: "1", "Origin": self.url}, data={"token": token}
        )
        assert answer.ok, answer.text()

    def open(self, address: str | None = None) -> Page:
        page = self.context.new_page()
        if address is not None:
            self.go(page, address)
        return page

    def go(self, page: Page, address: str) -> Response:
        answer = page.goto(address)
        assert answer is not None
        settled(page)
        return answer

    def install_clock(self, page: Page) -> None:
        """Let the test advance the time. The clock stays in the profile, so no other test gets this profile."""
        self._pool = None
        page.clock.install()

    def close(self) -> None:
        if self._pool is not None and isinstance(self._profile, ReusableProfile):
            self._pool.give_back(self._profile)
            self.context.remove_listener("page", self.watch.on_page)
        else:
            self._profile.close()
        assert self.watch.unexpected == []


def settled(page: Page) -> None:
    """The page is made, and what it waited for has come."""
    expect(page.locator("#main h1").first).to_be_visible()
    expect(page.locator("#main .loading, #main [aria-busy=true]")).to_have_count(0)


@contextmanager
def held_back(page: Page, query: str) -> Iterator[None]:
    """Answers to the GraphQL operation of this name do not come before the block's end."""
    held: list[Route] = []

    def decide(route: Route) -> None:
        if asks(route.request, query):
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/graphql", decide)
    yield
    assert held, f"nobody asked for {query}"
    for route in held:
        route.continue_()
    page.unroute("**/api/graphql", decide)


@contextmanager
def overtaken(page: Page, path: str, which: Callable[[Request], bool]) -> Iterator[None]:
    """The first answer to such a request is given at once and comes at the block's end, after all that are newer; what
    the page makes of it is made.
    """
    held: list[tuple[Route, APIResponse]] = []

    def decide(route: Route) -> None:
        if not held and which(route.request):
            held.append((route, route.fetch()))
        else:
            route.continue_()

    page.route(f"**{path}", decide)
    yield
    assert held, "nobody asked"
    ((route, answer),) = held
    route.fulfill(response=answer)
    if came := route.request.response():
        came.finished()
    page.unroute(f"**{path}", decide)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def asks(request: Request, name: str) -> bool:
    """It is the GraphQL operation of this name."""
    return re.search(rf"(query|mutation) {name}\(", request.post_data or "") is not None


def fill_login(page: Page, user: ProviderUser) -> None:
    """On the sign-in page of an identity provider, oidc-provider or Keycloak."""
    page.locator("[name=username]").fill(user.name)
    page.locator("[name=password]").fill(user.password)
    page.locator("[name=login]").click()


def confirm_logout(page: Page) -> None:
    """Where the provider asks whether to sign out."""
    page.locator("[name=logout], [name=confirmLogout]").click()
