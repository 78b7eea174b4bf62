"""What a reader of the console waits for: `python -m bench console`.

Each page in a real Chromium: what it weighs on the wire (gzip, nothing in the cache), how long a reload takes with a
warm cache over a network with a round trip of 200 ms, and how often Tab is pressed until the link to the next page
has the focus. Printed as the table of docs/explanation/performance.md.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import CDPSession, Page

from tests.support.browser import Window, chromium, settled
from tests.support.console import Console
from tests.support.furniture import VIEWS, furnish

ROUND_TRIP = 200
MOST_SECONDS, MOST_STOPS, MOST_STOPS_TRIED = 1.0, 25, 100
NOTE_CHANGES = """new MutationObserver(() => { window.lastChange = performance.now(); })
  .observe(document, { subtree: true, childList: true, attributes: true, characterData: true });"""
MANY = 25
"""Tokens, so that lists have a second page."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench console", description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=5, help="reloads of each page; the median is shown (%(default)s)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    given = parser.parse_args()
    missed = []
    with tempfile.TemporaryDirectory() as folder, Console.on(Path(folder)) as console, chromium() as browser:
        furnish(console)
        for number in range(MANY):
            console.token(console.root.urn, name=f"token {number}")
            console.token(f"urn:li:corpuser:person-{number}")
        print("| page | kB on the wire | warm reload | Tab to the next page |\n|---|---|---|---|")
        for name, address in VIEWS.items():
            window = Window(browser, console)
            window.sign_in(console.root.token)
            page = window.open()
            page.add_init_script(NOTE_CHANGES)
            wire = window.context.new_cdp_session(page)
            weight = _weight(window, page, wire, address(console))
            seconds = statistics.median(_reload(page, wire) for _ in range(given.repeats))
            stops = _stops(page)
            print(f"| {name} | {weight / 1_000:.0f} | {seconds:.2f} s | {stops or ''} |", flush=True)
            if seconds >= MOST_SECONDS or (stops or 0) >= MOST_STOPS:
                missed.append(name)
            window.close()
    print(
        f"Targets: {MOST_SECONDS} s, {MOST_STOPS} stops; " + (f"missed by {', '.join(missed)}." if missed else "met.")
    )
    sys.exit(1 if missed and given.strict else 0)


def _weight(window: Window, page: Page, wire: CDPSession, address: str) -> int:
    transferred: dict[str, int] = {}
    wire.send("Network.enable")
    wire.on("Network.loadingFinished", lambda told: transferred.update({told["requestId"]: told["encodedDataLength"]}))
    window.go(page, address)
    page.wait_for_load_state("networkidle")
    return sum(transferred.values())


def _reload(page: Page, wire: CDPSession) -> float:
    """From the request until the page changed for the last time, by the browser's clock."""
    slow = {"offline": False, "latency": ROUND_TRIP, "downloadThroughput": -1, "uploadThroughput": -1}
    wire.send("Network.emulateNetworkConditions", slow)
    page.reload()
    settled(page)
    page.wait_for_load_state("networkidle")
    taken: float = page.evaluate("lastChange")
    wire.send("Network.emulateNetworkConditions", {**slow, "latency": 0})
    return taken / 1_000


def _stops(page: Page) -> int | None:
    """None for a page without a next one, or with a panel, in which the focus stays."""
    if page.locator(".panel").count() or not page.locator("#next-page, .pager a[rel=next]").count():
        return None
    for stops in range(1, MOST_STOPS_TRIED):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.matches('.skip-pages')"):
            page.keyboard.press("Enter")
        if page.evaluate("() => document.activeElement.matches('#next-page, .pager a[rel=next]')"):
            return stops
    return MOST_STOPS_TRIED


if __name__ == "__main__":
    main()
