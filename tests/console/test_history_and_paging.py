"""Back, forward and reload restore the view; a list of 100,000 tokens is paged."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from bench.fill import fill, is_revoked
from tests.console.conftest import Windows
from tests.support.browser import Window
from tests.support.console import Console, now
from tests.support.server import GENERATE

MANY = 100_000
PAGE = 20


def names(page: Page) -> list[str]:
    found: list[str] = page.locator("table.rows tbody th a").all_inner_texts()
    return found


def count_requests(opened: Window) -> int:
    """Count the API requests of this window's pages."""
    return opened.watch.requests.count("POST /api/graphql")


def expect_range(page: Page, first: int, last: int, total: int) -> None:
    expect(page.locator(".pager")).to_contain_text(f"{first:,}\N{EN DASH}{last:,} of {total:,}")


def test_back_forward_and_reload_restore_the_page(console: Console, window: Windows) -> None:
    alice = console.person("alice", GENERATE)
    for number in range(25):
        console.token(alice.urn, by=alice, name=f"token {number:02}")
    page = window(alice).open("/console/tokens?sort=name&order=ASCENDING")
    expect(page.get_by_role("link", name="token 00")).to_be_visible()
    first = names(page)
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="token 24")).to_be_visible()
    second = names(page)
    assert (len(first), len(second), set(first) & set(second)) == (PAGE, 6, set())
    page.get_by_label("Search tokens").fill("token 1")
    page.get_by_label("Search tokens").press("Enter")
    expect_range(page, 1, 10, 10)
    page.get_by_role("link", name="token 13").click()
    panel = page.get_by_role("dialog", name="token 13")
    expect(panel).to_be_visible()

    page.reload()
    expect(panel).to_be_visible()
    expect(page.get_by_label("Search tokens")).to_have_value("token 1")
    page.go_back()
    expect(panel).to_have_count(0)
    expect_range(page, 1, 10, 10)
    page.go_back()
    expect_range(page, 21, 26, 26)
    assert names(page) == second
    page.go_back()
    expect_range(page, 1, 20, 26)
    assert names(page) == first
    for _ in range(3):
        page.go_forward()
    expect(panel).to_be_visible()
    shared = page.url
    expect(window(alice).open(shared).get_by_role("dialog", name="token 13")).to_be_visible()


@pytest.fixture
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    folder = tmp_path_factory.mktemp("crowded")
    (folder / "data").mkdir(mode=0o700)
    fill(folder / "data" / "watchword.db", MANY, now=now())
    with Console.on(folder) as console:
        yield console


def test_100000_tokens_are_paged_with_one_request_per_page(crowded: Console, window: Windows) -> None:
    # A tenth of the tokens is revoked and not listed. The soonest expiry comes first; root's own token expires in an
    # hour.
    listed = ["first", *(f"token {number}" for number in reversed(range(MANY)) if not is_revoked(number))]
    opened = window(crowded.root, on=crowded)
    page = opened.open("/console/all-tokens")
    page.wait_for_load_state("networkidle")
    expect_range(page, 1, PAGE, len(listed))
    assert names(page) == listed[:PAGE]
    for step in (2, 3):
        before = count_requests(opened)
        page.get_by_role("link", name="Next page").click()
        expect_range(page, (step - 1) * PAGE + 1, step * PAGE, len(listed))
        assert names(page) == listed[(step - 1) * PAGE : step * PAGE]
        assert count_requests(opened) == before + 1
    before = count_requests(opened)
    last = -(-len(listed) // PAGE)
    page.get_by_role("link", name=f"Page {last}", exact=True).click()
    expect_range(page, (last - 1) * PAGE + 1, len(listed), len(listed))
    assert names(page) == listed[(last - 1) * PAGE :]
    assert count_requests(opened) == before + 1
    page.get_by_role("link", name="Previous page").click()
    expect_range(page, (last - 2) * PAGE + 1, (last - 1) * PAGE, len(listed))
    assert names(page) == listed[(last - 2) * PAGE : (last - 1) * PAGE]
