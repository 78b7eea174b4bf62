"""The Operations page: sizes as bars, a plan as a picture, a truncation followed to its end, on each engine."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Windows
from tests.support.browser import Window, settled
from tests.support.console import Console
from tests.support.indexed import index_of
from tests.support.nodes import SharedNodes
from tests.support.series import lines, new_aspect
from tests.support.waiting import until

SIZES = "GET_TIMESERIES_INDEX_SIZES_PRIVILEGE"
TRUNCATE = "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE"
OLD, YOUNG = 6, 10
RATE = 2
MANY = 50
"""Times as many rows take minutes, far longer than any test: what must be under way when it is looked at is."""


@pytest.fixture(scope="module", params=["embedded", "opensearch-2"])
def indexed(
    request: pytest.FixtureRequest, shared_nodes: SharedNodes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A server on each engine that takes a few seconds for what is old."""
    with (
        index_of(request.param, shared_nodes) as index,
        Console.on(tmp_path_factory.mktemp("indexed"), *index.flags, "--index-rate", str(RATE)) as console,
    ):
        console.settings = dict(zip(("WATCHWORD_INDEX_URL", "WATCHWORD_INDEX_PREFIX"), index.flags[1::2], strict=False))
        yield console


@pytest.fixture
def aspect(indexed: Console) -> str:
    """A time series of the test's own: its old rows are 100 days old, the young ones 10."""
    return series(indexed)


@pytest.fixture
def long(indexed: Console) -> str:
    """One whose truncation is not over before the test is."""
    return series(indexed, MANY)


def series(console: Console, times: int = 1) -> str:
    name = new_aspect()
    words = ("index", "load", "-", "--entity", "dataset", "--aspect", name)
    old, young = OLD * times, YOUNG * times
    rows = lines([100.0 + n / old for n in range(old)] + [10.0 - n / young for n in range(young)])
    ran = console.server.command_line(*words, stdin=rows, env=console.settings)
    assert ran.returncode == 0, ran.stderr
    return name


def rows(console: Console, aspect: str) -> int:
    found = console.ask("{ indexSizes { aspectName rows } }")["indexSizes"]
    count: int = {one["aspectName"]: one["rows"] for one in found}[aspect]
    return count


def planned(page: Page, aspect: str, days: int = 50) -> None:
    """From the list of indices to the plan."""
    page.get_by_role("link", name=f"Plan a truncation of dataset.{aspect}", exact=True).click()
    page.get_by_label("Age").fill(str(days))
    page.get_by_role("button", name="Show plan").click()
    expect(page.get_by_role("heading", name="Plan", exact=True)).to_be_visible()


def begun(page: Page, count: int) -> None:
    page.get_by_role("button", name=f"Delete {count} rows…").click()
    deed = page.get_by_role("dialog").get_by_role("button", name=f"Delete {count} rows")
    expect(deed).to_be_disabled()
    page.get_by_label(f"Type {count} to confirm").fill(str(count))
    deed.click()
    expect(page).to_have_url(re.compile(r"/console/operations/[^/?]+$"))


def test_a_truncation_is_planned_begun_and_followed_to_its_end(indexed: Console, window: Windows, aspect: str) -> None:
    worker = indexed.person("worker", SIZES, TRUNCATE)
    page = window(worker, on=indexed).open("/console/operations")
    planned(page, aspect)
    plan = page.get_by_role("region", name="Plan", exact=True)
    expect(plan).to_contain_text("37.5% of 16 rows")
    picture = plan.get_by_role("img")
    expect(picture).to_have_attribute("aria-label", re.compile("6 rows up to .+ deleted, 10 rows kept"))
    left_of_cut = """(svg) => { const at = Number(svg.querySelector(".cut").getAttribute("x1"));
      const wide = (kind, side) => [...svg.querySelectorAll(kind)].filter((one) => Number(one.getAttribute("height")))
        .every((one) => (Number(one.getAttribute("x")) < at) === side);
      return [wide(".go", true), wide(".stay", false)] }"""
    assert picture.evaluate(left_of_cut) == [True, True]
    assert rows(indexed, aspect) == OLD + YOUNG

    begun(page, OLD)
    panel = page.get_by_role("dialog", name=f"Truncation of dataset.{aspect}")
    expect(panel.get_by_role("status")).to_contain_text("10 rows are left")
    expect(panel.get_by_role("listitem").filter(has_text="done")).to_have_attribute("aria-current", "step")
    expect(page.get_by_role("row", name=re.compile(f"dataset.{aspect} .*done.* 6 of 16 rows"))).to_be_visible()
    assert rows(indexed, aspect) == YOUNG


def test_it_is_not_asked_for_any_more_once_it_is_left_or_over(indexed: Console, window: Windows, aspect: str) -> None:
    opened = window(indexed.root, on=indexed)
    page = opened.open()
    page.clock.install()  # which goes on by itself, and can be put forward
    opened.go(page, "/console/operations")
    planned(page, aspect)
    begun(page, OLD)
    expect(page.get_by_role("progressbar", name="Rows done")).to_be_visible()
    page.get_by_role("link", name="My tokens").click()
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
    assert asked_in_a_minute(opened, page) == 0
    page.go_back()
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("10 rows are left")
    expect(page.get_by_role("row", name=re.compile(f"dataset.{aspect} .*done"))).to_be_visible()
    assert asked_in_a_minute(opened, page) == 0


def asked_in_a_minute(opened: Window, page: Page) -> int:
    """Once all that was asked for is there: far longer than the longest pause between two questions."""
    settled(page)
    before = len(opened.watch.requests)
    page.clock.run_for(60_000)
    page.evaluate("() => 0")  # lets the browser tell what it was asked
    return len(opened.watch.requests) - before


def test_a_truncation_is_seen_under_way_and_cancelled(indexed: Console, window: Windows, long: str) -> None:
    page = window(indexed.root, on=indexed).open(
        f"/console/operations/plan?index=dataset.{long}&older=50d&strategy=copy"
    )
    copies = bool(indexed.settings)  # on a cluster
    by = "By copy: forceReindex is set" if copies else "By deletion: the embedded index always deletes in batches"
    expect(page.get_by_role("region", name="Plan", exact=True)).to_contain_text(by)
    begun(page, OLD * MANY)
    panel = page.get_by_role("dialog", name=f"Truncation of dataset.{long}")
    expect(panel.get_by_role("listitem").filter(has_text="running")).to_have_attribute("aria-current", "step")
    expect(panel.get_by_role("progressbar", name="Rows done")).to_be_visible()
    expect(panel).to_contain_text(re.compile(rf"\d+ of {(YOUNG if copies else OLD) * MANY} rows · \d+ rows a second"))
    panel.get_by_role("button", name="Cancel the truncation").click()
    asked = page.get_by_role("dialog", name="Cancel this truncation?")
    if copies:
        expect(asked).to_contain_text("Nothing has been deleted yet")
    asked.get_by_role("button", name="Cancel the truncation").click()
    expect(panel.get_by_role("listitem").filter(has_text="cancelled")).to_have_attribute("aria-current", "step")
    expect(panel.get_by_role("button", name="Cancel the truncation")).to_have_count(0)
    every, left = (OLD + YOUNG) * MANY, rows(indexed, long)
    assert left == every if copies else YOUNG * MANY < left <= every


def test_while_one_is_under_way_another_is_refused_and_leads_to_it(
    indexed: Console, window: Windows, long: str
) -> None:
    opened = window(indexed.root, on=indexed)
    address = f"/console/operations/plan?index=dataset.{long}&older=50d"
    page, other = opened.open(address), opened.open(address)
    begun(page, OLD * MANY)
    other.get_by_role("button", name=f"Delete {OLD * MANY} rows…").click()
    other.get_by_label(f"Type {OLD * MANY} to confirm").fill(str(OLD * MANY))
    other.get_by_role("dialog").get_by_role("button", name=f"Delete {OLD * MANY} rows").click()
    expect(other.get_by_role("dialog").get_by_role("alert")).to_contain_text("operation")
    other.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    other.get_by_role("link", name="Show the running truncation").click()
    expect(other).to_have_url(page.url)
    # Whoever looks at the history of this server later finds nothing under way.
    told = {"id": unquote(page.url.rpartition("/")[2])}
    indexed.ask("mutation ($id: String!) { cancelOperation(id: $id) { id } }", told)
    state = "query ($id: String!) { operation(id: $id) { state } }"
    until(lambda: indexed.ask(state, told)["operation"]["state"] == "CANCELLED", "it is cancelled")


def test_what_the_caller_may_not_do_is_not_offered(indexed: Console, window: Windows, aspect: str) -> None:
    reader = indexed.person("reader", SIZES)
    opened = window(reader, on=indexed)
    page = opened.open("/console/operations")
    expect(page.get_by_role("row", name=re.compile(f"dataset.{aspect} .* 16"))).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("[Pp]lan"))).to_have_count(0)
    expect(page.get_by_role("heading", name="History")).to_have_count(0)
    planner = indexed.person("planner", TRUNCATE)
    page = window(planner, on=indexed).open("/console/operations/plan")
    page.get_by_label("Index").fill(f"dataset.{aspect}")
    page.get_by_role("button", name="Show plan").click()
    expect(page.get_by_role("region", name="Plan", exact=True)).to_contain_text("16 rows")


def test_an_aspect_that_is_not_there_is_refused_in_the_server_s_sentence(indexed: Console, window: Windows) -> None:
    page = window(indexed.root, on=indexed).open("/console/operations/plan?index=dataset.neverheard&older=5d")
    expect(page.get_by_role("alert")).to_contain_text("There is no index of entityType dataset and aspect neverheard.")
