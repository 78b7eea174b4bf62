"""The Operations page on each engine: sizes, plan, and a truncation watched to its end."""

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
"""A truncation of MANY times the rows takes minutes, longer than any test."""


# The page asks the server, not the engine: most of its behaviours are tried on one engine, and on both in the soak.
EITHER_ENGINE = pytest.mark.parametrize(
    "indexed", ["embedded", pytest.param("opensearch-2", marks=pytest.mark.soak)], indirect=True, scope="module"
)


@pytest.fixture(scope="module", params=["embedded", "opensearch-2"])
def indexed(
    request: pytest.FixtureRequest, shared_nodes: SharedNodes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Console]:
    """A server on each engine; truncating the old rows takes a few seconds."""
    with (
        index_of(request.param, shared_nodes) as index,
        Console.on(tmp_path_factory.mktemp("indexed"), *index.flags, "--index-rate", str(RATE)) as console,
    ):
        console.settings = dict(zip(("WATCHWORD_INDEX_URL", "WATCHWORD_INDEX_PREFIX"), index.flags[1::2], strict=False))
        yield console


@pytest.fixture
def aspect(indexed: Console) -> str:
    """Create a time series with old rows (100 days) and young rows (10 days)."""
    return create_series(indexed)


@pytest.fixture
def long_series(indexed: Console) -> str:
    """Create a time series whose truncation takes longer than the test."""
    return create_series(indexed, MANY)


def create_series(console: Console, times: int = 1) -> str:
    name = new_aspect()
    words = ("index", "load", f"dataset.{name}", "-")
    old, young = OLD * times, YOUNG * times
    text = lines([100.0 + n / old for n in range(old)] + [10.0 - n / young for n in range(young)])
    ran = console.server.command_line(*words, stdin=text, env=console.settings)
    assert ran.returncode == 0, ran.stderr
    return name


def count_rows(console: Console, aspect: str) -> int:
    found = console.ask("{ indexSizes { aspectName rows } }")["indexSizes"]
    count: int = {one["aspectName"]: one["rows"] for one in found}[aspect]
    return count


def show_plan(page: Page, aspect: str, days: int = 50) -> None:
    """Go from the list of indices to the plan."""
    page.get_by_role("link", name=f"Plan a truncation of dataset.{aspect}", exact=True).click()
    page.get_by_label("Age", exact=True).fill(str(days))
    page.get_by_role("button", name="Show plan").click()
    expect(page.get_by_role("heading", name="Plan", exact=True)).to_be_visible()


def start_truncation(page: Page, count: int) -> None:
    page.get_by_role("button", name=f"Delete {count} rows…").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name=f"Delete {count} rows")
    expect(confirm).to_be_disabled()
    page.get_by_label(f"Type {count} to confirm").fill(str(count))
    confirm.click()
    expect(page).to_have_url(re.compile(r"/console/operations/[^/?]+$"))


def test_truncation_is_planned_started_and_watched_to_its_end(indexed: Console, window: Windows, aspect: str) -> None:
    worker = indexed.person("worker", SIZES, TRUNCATE)
    page = window(worker, on=indexed).open("/console/operations")
    show_plan(page, aspect)
    plan = page.get_by_role("region", name="Plan", exact=True)
    expect(plan).to_contain_text("37.5% of 16 rows")
    picture = plan.get_by_role("img")
    expect(picture).to_have_attribute("aria-label", re.compile("6 rows up to .+ deleted, 10 rows kept"))
    left_of_cut = """(svg) => { const at = Number(svg.querySelector(".cut").getAttribute("x1"));
      const wide = (kind, side) => [...svg.querySelectorAll(kind)].filter((one) => Number(one.getAttribute("height")))
        .every((one) => (Number(one.getAttribute("x")) < at) === side);
      return [wide(".go", true), wide(".stay", false)] }"""
    assert picture.evaluate(left_of_cut) == [True, True]
    assert count_rows(indexed, aspect) == OLD + YOUNG

    start_truncation(page, OLD)
    panel = page.get_by_role("dialog", name=f"Truncation of dataset.{aspect}")
    expect(panel.get_by_role("status")).to_contain_text("10 rows are left")
    expect(panel.get_by_role("listitem").filter(has_text="done")).to_have_attribute("aria-current", "step")
    expect(page.get_by_role("row", name=re.compile(f"dataset.{aspect} .*done.* 6 of 16 rows"))).to_be_visible()
    assert count_rows(indexed, aspect) == YOUNG


@EITHER_ENGINE
def test_polling_stops_when_the_operation_ends_or_the_page_is_left(
    indexed: Console, window: Windows, aspect: str
) -> None:
    opened = window(indexed.root, on=indexed)
    page = opened.open()
    opened.install_clock(page)  # the clock runs by itself and can be advanced
    opened.go(page, "/console/operations")
    show_plan(page, aspect)
    start_truncation(page, OLD)
    expect(page.get_by_role("progressbar", name="Rows done")).to_be_visible()
    page.get_by_role("link", name="My tokens").click()
    expect(page.get_by_role("heading", name="My tokens")).to_be_visible()
    assert requests_in_a_minute(opened, page) == 0
    page.go_back()
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("10 rows are left")
    expect(page.get_by_role("row", name=re.compile(f"dataset.{aspect} .*done"))).to_be_visible()
    assert requests_in_a_minute(opened, page) == 0


def requests_in_a_minute(opened: Window, page: Page) -> int:
    """Count requests in a minute, which is longer than the longest polling interval."""
    settled(page)
    before = len(opened.watch.requests)
    page.clock.run_for(60_000)
    page.evaluate("() => 0")  # lets the browser report its requests
    return len(opened.watch.requests) - before


def test_running_truncation_is_shown_and_cancelled(indexed: Console, window: Windows, long_series: str) -> None:
    page = window(indexed.root, on=indexed).open(
        f"/console/operations/plan?index=dataset.{long_series}&older=50d&strategy=copy"
    )
    copies = bool(indexed.settings)  # on a cluster
    by = "By copy: forceReindex is set" if copies else "By deletion: the embedded index always deletes in batches"
    expect(page.get_by_role("region", name="Plan", exact=True)).to_contain_text(by)
    start_truncation(page, OLD * MANY)
    panel = page.get_by_role("dialog", name=f"Truncation of dataset.{long_series}")
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
    every, left = (OLD + YOUNG) * MANY, count_rows(indexed, long_series)
    assert left == every if copies else YOUNG * MANY < left <= every


@EITHER_ENGINE
def test_second_truncation_is_rejected_with_a_link_to_the_first(
    indexed: Console, window: Windows, long_series: str
) -> None:
    opened = window(indexed.root, on=indexed)
    address = f"/console/operations/plan?index=dataset.{long_series}&older=50d"
    page, other = opened.open(address), opened.open(address)
    start_truncation(page, OLD * MANY)
    other.get_by_role("button", name=f"Delete {OLD * MANY} rows…").click()
    other.get_by_label(f"Type {OLD * MANY} to confirm").fill(str(OLD * MANY))
    other.get_by_role("dialog").get_by_role("button", name=f"Delete {OLD * MANY} rows").click()
    expect(other.get_by_role("dialog").get_by_role("alert")).to_contain_text("operation")
    other.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    other.get_by_role("link", name="Show the running truncation").click()
    expect(other).to_have_url(page.url)
    # Leave nothing running for later tests of this server.
    told = {"id": unquote(page.url.rpartition("/")[2])}
    indexed.ask("mutation ($id: String!) { cancelOperation(id: $id) { id } }", told)
    state = "query ($id: String!) { operation(id: $id) { state } }"
    until(lambda: indexed.ask(state, told)["operation"]["state"] == "CANCELLED", "it is cancelled")


@EITHER_ENGINE
def test_operations_without_privilege_are_hidden(indexed: Console, window: Windows, aspect: str) -> None:
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


@EITHER_ENGINE
def test_unknown_aspect_shows_the_server_error(indexed: Console, window: Windows) -> None:
    page = window(indexed.root, on=indexed).open("/console/operations/plan?index=dataset.neverheard&older=5d")
    expect(page.get_by_role("alert")).to_contain_text("There is no index of entityType dataset and aspect neverheard.")


def test_deletion_of_a_held_series_is_not_offered(indexed: Console, window: Windows, long_series: str) -> None:
    series = f"dataset.{long_series}"
    hold = "mutation ($input: HoldSeriesInput!) { holdSeries(input: $input) { activeOperations { id } } }"
    indexed.ask(hold, {"input": {"series": series, "reason": "case 7"}})
    page = window(indexed.root, on=indexed).open(f"/console/operations/plan?index={series}&older=50d")
    expect(page.get_by_role("region", name="Plan")).to_contain_text("case 7")
    expect(page.get_by_role("button", name=re.compile("^Delete"))).to_have_count(0)
    indexed.ask("mutation ($series: String!) { releaseSeries(series: $series) }", {"series": series})
    page.reload()
    expect(page.get_by_role("button", name=re.compile("^Delete"))).to_be_visible()
