"""The documentation site: the strict build succeeds, links work, and nothing is loaded from other hosts."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from tests.support.clients import client_env
from tests.support.pages import ROOT
from tests.support.waiting import SECONDS

FETCHED = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src", "link": "href", "object": "data",
    "script": "src", "source": "src", "track": "src", "use": "href", "video": "src",
}  # fmt: skip
"""Elements that a browser loads by itself, with the attribute that names the address."""


@dataclass
class Page(HTMLParser):
    """A page of the built site: its links, what it loads, and its anchors."""

    path: Path
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.parts.update(said[name] for name in ("id", "name") if name in said)
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
        if tag in FETCHED and FETCHED[tag] in said:
            self.fetched.append(said[FETCHED[tag]])
        self.fetched.extend(one.split()[0] for one in said.get("srcset", "").split(",") if one.strip())


@dataclass(frozen=True)
class Site:
    folder: Path
    pages: dict[Path, Page]

    def broken_links(self, page: Page) -> Iterator[str]:
        for link in [*page.links, *page.fetched]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            base = self.folder if parts.path.startswith("/") else page.path.parent
            there = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else page.path
            if there.is_dir():
                there /= "index.html"
            known = self.pages[there].parts if there in self.pages else {unquote(parts.fragment)}
            is_there = there.is_relative_to(self.folder) and there.is_file()
            if not is_there or (parts.fragment and unquote(parts.fragment) not in known):
                yield link


def build(folder: Path, project: Path = ROOT) -> subprocess.CompletedProcess[str]:
    client_env("docs")  # skips if it cannot be installed
    return subprocess.run(
        [sys.executable, str(project / "scripts/site"), "build", "--folder", str(folder)],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    made = folder / "site"
    return Site(made, {path: Page(path) for path in sorted(made.rglob("*.html"))})


def test_every_link_and_anchor_of_the_site_exists(site: Site) -> None:
    assert sum(len(page.links) for page in site.pages.values()) > 1_000
    broken = {str(path): found for path, page in site.pages.items() if (found := list(site.broken_links(page)))}
    assert broken == {}


def test_site_loads_nothing_from_other_hosts(site: Site) -> None:
    fetched = {one for page in site.pages.values() for one in page.fetched}
    assert any(one.endswith(".css") for one in fetched)
    assert any(one.endswith(".js") for one in fetched)
    assert [one for one in sorted(fetched) if urlsplit(one).netloc] == []
    for sheet in site.folder.rglob("*.css"):
        named = re.findall(
            r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", sheet.read_text(encoding="utf-8")
        )
        assert named == [], sheet.name


def test_site_links_only_hosts_named_in_the_pages(site: Site) -> None:
    linked = {link for page in site.pages.values() for link in page.links if urlsplit(link).scheme.startswith("http")}
    written = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.md"))
    assert [link for link in sorted(linked) if link not in written] == []


def test_navigation_lists_every_page_once(site: Site) -> None:
    text = re.sub(r"!!python/\S+ ", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = list(_leaves(yaml.safe_load(text)["nav"]))
    own = {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}
    assert sorted(named) == sorted(own | {f"project/{path.name}" for path in ROOT.glob("[CS]*.md")})
    front = next(page for path, page in site.pages.items() if path == site.folder / "index.html")
    shown = {str(Path(link)) for link in front.links}
    made = [re.sub(r"(README|index)\.md$", "index.html", name).replace(".md", ".html") for name in named]
    assert [name for name in made if name not in shown and name != "index.html"] == []


def _leaves(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for one in nav:
            yield from _leaves(one)
    elif isinstance(nav, dict):
        for one in nav.values():
            yield from _leaves(one)


def test_search_index_covers_every_page(site: Site) -> None:
    index = (site.folder / "search.json").read_text(encoding="utf-8")
    for path in site.pages:
        if path.name != "404.html":
            assert str(path.relative_to(site.folder)).removesuffix("index.html") in index, path


@pytest.mark.soak
@pytest.mark.parametrize(
    ("link", "told"),
    [
        ("how-to/nowhere.md", "page does not exist"),
        ("how-to/run-it.md#no-such-part", "anchor does not exist"),
        ("../src/watchword/nothing.py", "nothing.py is linked but does not exist"),
    ],
)
def test_broken_link_fails_the_build(link: str, told: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, project / name)
    for path in ROOT.iterdir():
        if not (project / path.name).exists():
            (project / path.name).symlink_to(path)
    page = project / "docs/index.md"
    page.write_text(page.read_text(encoding="utf-8") + f"\n[a link]({link})\n", encoding="utf-8")
    done = build(tmp_path / "made", project)
    assert done.returncode != 0
    assert told in done.stdout + done.stderr
