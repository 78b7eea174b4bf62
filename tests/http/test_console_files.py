"""The console's files: only those of the package are served, with strict headers."""

import gzip
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import until
from tests.support.wire import send

FOLDER = Path(str(files("watchword") / "console"))
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".png": "image/png",
}
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file() and path.name != "index.html")
VIEWS = (
    "/",
    "/console",
    "/console/",
    "/console/tokens",
    "/console/tokens/new",
    "/console/operations/a:1?page=2",
    "/console/sign-in",
    "/device?user_code=BCDF-GHJK",
)
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "font-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "watchword",
}


def test_every_console_file_has_a_served_type() -> None:
    assert FOLDER / "main.js" in FILES
    assert [path for path in FILES if path.suffix not in KINDS] == []


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_serves_index_html(server: Server, view: str) -> None:
    answer = server.http.get(view)
    assert (answer.status_code, answer.headers["content-type"]) == (200, KINDS[".html"])
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.text.startswith("<!doctype html>")


def test_index_preloads_every_module_that_all_views_import(server: Server) -> None:
    preloaded = re.findall(r'<link rel="modulepreload" href="(/assets/\w{16}/[\w.]+)">', server.http.get("/").text)
    assert preloaded[0] == server.asset("main.js")
    imported = set()
    for address in preloaded:
        imported |= set(
            re.findall(r'^(?:import|export \{)[^"]*"\./([\w/.]+)"', server.http.get(address).text, re.MULTILINE)
        )
    assert {server.asset(name) for name in imported} | {preloaded[0]} == set(preloaded)
    assert len(preloaded) == len(set(preloaded)) > 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_file_is_served_with_its_content_type(server: Server, path: Path) -> None:
    answer = server.http.get(server.asset(str(path.relative_to(FOLDER))))
    assert (answer.status_code, answer.headers["content-type"]) == (200, KINDS[path.suffix])
    assert answer.content == path.read_bytes()
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("target", ["/", "asset"])
def test_content_policy_allows_only_own_resources(server: Server, target: str) -> None:
    headers = server.http.get(target if target == "/" else server.asset("mark.svg")).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert {power.strip().partition("=")[2] for power in headers["permissions-policy"].split(",")} == {"()"}


@pytest.mark.parametrize(
    "target",
    [
        "", "none.js", "../main.js", "..%2fmain.js", "%2e%2e/wiring.py", "../wiring.py", "/main.js", "./main.js",
        "main.js/", "MAIN.JS", "main.js%00", "pages", "pages/", "/etc/passwd", "\\main.js", "index.html",
        "/assets", "/assets/", "/assets/main.js", "/assets/0123456789abcdef/main.js", "/consoles", "/gms/console",
    ],
)  # fmt: skip
def test_lookalike_asset_paths_return_404(server: Server, target: str) -> None:
    whole = target.startswith(("/assets", "/con", "/gms"))
    answer = send(server, "GET", target if whole else server.asset(target), [], None)
    assert (answer.status, answer.json()["error"]["reason"]) == (404, "no_such_address")


@pytest.mark.parametrize("target", ["/", "/console/tokens", "/assets/x/main.js"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_console_files_accept_only_get_and_head(server: Server, target: str, method: str) -> None:
    answer = server.http.request(method, target)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("target", ["/", "asset"])
def test_head_returns_the_headers_of_get(server: Server, target: str) -> None:
    target = target if target == "/" else server.asset("main.js")
    got, told = send(server, "GET", target, [], None), send(server, "HEAD", target, [], None)
    assert (told.status, told.body) == (200, b"")
    varying = {"x-request-id", "date"}
    assert {(k, v) for k, v in told.headers if k not in varying} == {(k, v) for k, v in got.headers if k not in varying}


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_matching_etag_returns_304(server: Server, coding: str) -> None:
    asked, file = [f"Accept-Encoding: {coding}"], server.asset("main.js")
    first = send(server, "GET", file, asked, None)
    tag = first.header("etag")
    assert tag
    for given in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = send(server, "GET", file, [*asked, f"If-None-Match: {given}"], None)
        assert (again.status, again.body, again.header("etag")) == (304, b"", tag)
    for given in ('"other"', tag.strip('"'), ""):
        assert send(server, "GET", file, [*asked, f"If-None-Match: {given}"], None).status == 200


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True), ("br, GZIP;q=0.5", True), ("deflate, gzip", True), ("gzip;q=1.0", True),
        ("gzip ; q=0.10", True), ("gzip;q=0", False), ("gzip; q=0.000", False), ("br", False),
        ("", False), ("xgzip", False),
    ],
)  # fmt: skip
def test_files_are_gzipped_for_clients_that_accept_it(server: Server, accepted: str, packed: bool) -> None:
    answer = send(server, "GET", server.asset("main.js"), [f"Accept-Encoding: {accepted}"], None)
    assert (answer.header("content-encoding") == "gzip") is packed
    assert answer.header("vary") == "accept-encoding"
    assert (gzip.decompress(answer.body) if packed else answer.body) == (FOLDER / "main.js").read_bytes()


def test_start_prints_the_address_of_the_console(server: Server) -> None:
    assert f"  console     {server.url}/\n" in server.out.read_text()


def test_console_requests_are_counted_under_two_routes(make_server: Callable[..., Server]) -> None:
    server = make_server()
    for path in ("/console/a", "/console/b/c", server.asset("main.js"), "/assets/none"):
        server.http.get(path)
    wanted = (
        'watchword_http_requests_total{route="/console/",status="200"} 2.0',
        'watchword_http_requests_total{route="/assets/",status="200"} 1.0',
        'watchword_http_requests_total{route="/assets/",status="404"} 1.0',
    )
    # A request is counted when its response is being sent.
    until(lambda: all(line in server.http.get("/metrics").text for line in wanted), "all are counted")
