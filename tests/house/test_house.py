"""Rules for the source tree: imports point one way, one module reads the environment, lock files have hashes."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "watchword"
MODULES = sorted(SOURCE.rglob("*.py"))

# The packages that each part of the source may import: from Watchword, and third-party. Any part may import the
# standard library.
ALLOWED_IMPORTS: dict[str, tuple[set[str], set[str]]] = {
    "domain": ({"domain"}, {"cronsim"}),
    "service": ({"service", "domain"}, set()),
    "files": ({"domain"}, set()),
    "event_sinks": ({"domain", "files"}, {"orjson"}),
    "signing": ({"domain", "files"}, {"jwt", "cryptography"}),
    "openid": ({"domain"}, {"joserfc"}),
    "outbound": ({"outbound", "domain"}, {"certifi", "h11"}),
    "webhook_client": ({"domain"}, set()),
    "smtp": ({"domain"}, {"aiosmtplib"}),
    "sqlite_file": ({"domain", "files"}, {"apsw"}),
    "stores": ({"stores", "domain", "files", "sqlite_file"}, {"apsw", "asyncpg", "orjson"}),
    "settings": ({"client", "domain", "setting_values"}, set()),
    "setting_values": ({"domain"}, set()),
    "interpreter": (set(), set()),
    "engines": ({"engines", "domain", "files", "sqlite_file"}, {"apsw", "httpx", "orjson"}),
    "policyfile": ({"domain", "files"}, {"yaml"}),
    "datahub_source": ({"domain", "stores"}, {"asyncpg", "pymysql"}),
    "http": (
        {"http", "files", "service", "domain", "settings", "setting_values"},
        {"granian", "graphql", "orjson", "prometheus_client", "structlog"},
    ),
    "client": ({"client", "domain", "files"}, {"httpx"}),
    "cli": (
        {"cli", "client", "files", "interpreter", "policyfile", "service", "domain", "settings"},
        {"click", "rich"},
    ),
    "doctor": (
        {"domain", "files", "policyfile", "settings", "signing", "sqlite_file", "stores"},
        {"cryptography", "httpx"},
    ),
    "wiring": (
        {
            "wiring",
            "datahub_source",
            "doctor",
            "event_sinks",
            "files",
            "http",
            "engines",
            "policyfile",
            "service",
            "domain",
            "interpreter",
            "openid",
            "outbound",
            "settings",
            "signing",
            "smtp",
            "stores",
            "webhook_client",
        },
        set(),
    ),
    "__main__": ({"wiring", "cli", "interpreter"}, set()),
}


def part_of(module: str) -> str:
    """`http` for `http.graphql.limits`; empty for the package itself."""
    return module.split(".", maxsplit=1)[0]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            if node.module == "watchword":
                yield from (f"watchword.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_imports_point_one_way() -> None:
    offenders = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in MODULES
        for name in imports(path)
        if not may_import(part_of(".".join(path.relative_to(SOURCE).with_suffix("").parts)), name)
    ]
    assert offenders == []


def test_only_the_app_imports_graphql() -> None:
    """The other endpoints of `http` do not depend on GraphQL."""
    importers = {
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "http").glob("*.py")
        for name in imports(path)
        if f"{name}.".startswith(("watchword.http.graphql.", "graphql."))
    }
    assert importers == {"http/app.py"}


def may_import(part: str, name: str) -> bool:
    if part == "__init__":
        return True
    ours, others = ALLOWED_IMPORTS[part]
    top, _, rest = name.partition(".")
    if top == "watchword":
        return rest == "__version__" or part_of(rest) in ours
    return top in sys.stdlib_module_names or top in others


def test_only_settings_reads_the_environment() -> None:
    """The client also reads its own variables: it works without the server's settings."""
    readers = [str(p.relative_to(SOURCE)) for p in MODULES if any(w in p.read_text() for w in ("os.environ", "getenv"))]
    assert readers == ["client/profiles.py", "settings.py"]


def test_python_locks_have_hashes_and_no_urls() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text


def test_node_client_lock_has_hashes_and_no_urls() -> None:
    text = (ROOT / "tests/clients/node/package-lock.json").read_text()
    packages = {name: what for name, what in json.loads(text)["packages"].items() if name}
    assert packages
    assert [name for name, what in packages.items() if not what["integrity"].startswith("sha512-")] == []
    assert "://" not in text


def test_search_node_locks_have_hashes_and_no_urls() -> None:
    locks = sorted((ROOT / "scripts/search-nodes").glob("*.lock"))
    assert locks
    for lock in locks:
        lines = lock.read_text().splitlines()
        assert lines
        assert [line for line in lines if not re.fullmatch(r"[0-9a-f]{64}  [\w.+-]+\.jar", line)] == []
