"""Browser profiles that tests use one after the other.

A new profile has empty caches and a new renderer process: a page in it takes twice the processor time of a page in a
profile that was used before. Between two tests a profile loses its pages and all that they stored.
"""

from collections import OrderedDict
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext

from tests.support.waiting import SECONDS

ONE_RENDERER = "--process-per-site"
"""Lets the pages of a profile share a renderer process, which the idle page keeps running."""

Theme = Literal["light", "dark"]

MOST_IDLE = 4
_IDLE_PAGE = "/health"

# Runs before any script of the page. Playwright injects it, so the content policy of the page does not block it.
_REPORT_BREACHES = """addEventListener("securitypolicyviolation",
  (event) => window.__breach(`${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}`));"""


class Profile:
    """A browser context. It reports breaches of the content policy to the list `faults`, which its user sets."""

    def __init__(self, browser: Browser, url: str, theme: Theme, width: int, **how: Any) -> None:
        self.faults: list[str] = []
        self.context: BrowserContext = browser.new_context(
            base_url=url,
            color_scheme=theme,
            viewport={"width": width, "height": 800},
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="Europe/Berlin",
            **how,
        )
        self.context.set_default_timeout(SECONDS * 1_000)
        self.context.expose_binding("__breach", lambda _, told: self.faults.append(f"policy breach: {told}"))
        self.context.add_init_script(_REPORT_BREACHES)

    def close(self) -> None:
        self.context.close()


class ReusableProfile(Profile):
    """A profile of the pool."""

    def __init__(self, browser: Browser, url: str, theme: Theme, width: int) -> None:
        super().__init__(browser, url, theme, width)
        self.key = (url, theme, width)
        self._idle_page = self.context.new_page()
        self._idle_page.goto(_IDLE_PAGE)
        self._wire = self.context.new_cdp_session(self._idle_page)

    def reset(self) -> None:
        """Remove everything that a test can leave, except caches."""
        for page in self.context.pages:
            if page is not self._idle_page:
                page.close()
        self.context.unroute_all()
        self.context.set_offline(False)
        self.context.clear_cookies()
        self.context.clear_permissions()
        self._wire.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})


class ProfilePool:
    """The profiles of one browser. Of the idle ones it keeps the latest."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._idle: OrderedDict[ReusableProfile, None] = OrderedDict()

    def lease(self, url: str, theme: Theme, width: int) -> ReusableProfile:
        """An idle profile with these options, or a new one."""
        key = (url, theme, width)
        for profile in reversed(self._idle):
            if profile.key == key:
                del self._idle[profile]
                return profile
        return ReusableProfile(self.browser, *key)

    def give_back(self, profile: ReusableProfile) -> None:
        profile.reset()
        self._idle[profile] = None
        if len(self._idle) > MOST_IDLE:
            self._idle.popitem(last=False)[0].close()
