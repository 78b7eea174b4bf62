"""The shell blocks of the documentation, run word for word against a real server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks, run_blocks
from tests.support.server import Server

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs/tutorial/first-token.md"
# Each page with the flags of the server it speaks of.
RUN: dict[Path, tuple[str, ...]] = {
    README: (),
    TUTORIAL: (),
    ROOT / "docs/how-to/policies.md": (),
    ROOT / "docs/how-to/rotate-keys.md": (),
    ROOT / "docs/how-to/run-it.md": (),
    ROOT / "docs/how-to/first-token-without-local-mode.md": ("--local-mode", "off"),
}


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_what_a_page_shows_is_what_happens(page: Path, make_server: Callable[..., Server], tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    server = make_server("--data-dir", str(folder / "watchword-data"), *RUN[page], folder=folder)
    for block, output in run_blocks(page, server):
        if block.shown is not None:
            assert block.prints(output), f"{block.code}\nshows:\n{block.shown}\nbut printed:\n{output}"


@pytest.mark.parametrize("page", [README, TUTORIAL], ids=lambda page: page.name)
def test_every_block_of_the_first_pages_shows_its_outcome(page: Path) -> None:
    assert [block.code for block in blocks(page) if block.shown is None] == []


def test_the_readme_leads_from_a_token_made_to_a_token_refused() -> None:
    shown = [block.shown or "" for block in blocks(README)]
    order = ['"accessToken"', '"total":1', "204", '"revokeAccessToken":true', "token_revoked"]
    places = [next(i for i, text in enumerate(shown) if word in text) for word in order]
    assert places == sorted(set(places))


def test_the_readme_shows_a_denial_then_a_policy_then_the_same_request_answered() -> None:
    found = blocks(README)
    denied = next(i for i, block in enumerate(found) if "missing_privilege" in (block.shown or ""))
    assert '"createPolicy":"urn:' in (found[denied + 1].shown or "")
    assert found[denied + 2].code == found[denied].code
    assert "errors" not in (found[denied + 2].shown or "errors")


def test_the_tutorial_ends_with_a_revoked_token_refused() -> None:
    last = blocks(TUTORIAL)[-1]
    assert "/auth" in last.code
    assert "token_revoked" in (last.shown or "")
    assert (last.shown or "").endswith("401")


def test_every_page_with_blocks_to_run_is_run() -> None:
    from tests.support.pages import pages

    assert {page for page in pages() if blocks(page)} == set(RUN)
