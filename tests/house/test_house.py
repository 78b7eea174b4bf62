"""Rules for the source tree: imports point one way, one module reads the environment, lock files have hashes."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchword.basics.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "watchword"
MODULES = sorted(SOURCE.rglob("*.py"))

ROOMS: dict[str, set[str]] = {
    "basics": set(),
    "database": {"apsw", "asyncpg", "orjson"},
    "outbound": {"certifi", "h11"},
    "journal": {"orjson"},
    "authority": set(),
    "http": {"granian", "graphql", "orjson", "structlog"},
    "access": {"orjson"},
    "tokens": {"cryptography", "jwt", "orjson", "structlog"},
    "accounts": set(),
    "audit": {"orjson"},
    "signin": {"joserfc"},
    "notices": {"aiosmtplib", "orjson"},
    "index": {"apsw", "cronsim", "httpx", "orjson"},
    "retention": {"orjson"},
    "declared": {"orjson", "yaml"},
    "stores": {"apsw", "orjson"},
    "offboarding": set(),
    "setting_values": set(),
    "settings": set(),
    "datahub": {"asyncpg", "orjson", "pymysql"},
    "admin": {"apsw", "asyncpg", "cryptography", "httpx", "orjson"},
    "app": {"granian", "graphql", "orjson", "prometheus_client", "structlog"},
    "cli": {"click", "rich"},
    "__main__": set(),
}
"""From the ground up: a room imports only from itself and from those before it; and these packages. `client` stands by
itself.
"""
ORDER = list(ROOMS)
SHELVES = {"store": 1, "service": 2, "jobs": 2, "graphql": 3, "http": 3, "wiring": 4}
"""The last word of a file's name, and its height. All other files of a room are rules, at the bottom. In a room, a file
imports nothing that stands higher.
"""
FOR_CLIENTS = {f"watchword.basics.{name}" for name in ("errors", "files", "names", "scopes", "secret", "times")}
SERVER_SHELVES = ("_store", "_service", "_jobs", "_graphql", "_http")
EAGER = {"admin.rules", "index.engine", "index.indices"}
"""Of rooms that are loaded when a command runs."""
LOCAL_COMMANDS = {"datahub.py", "db.py", "load.py", "serve.py", "token.py", "webhook.py"}


def module_of(path: Path) -> str:
    """`watchword.tokens.store`"""
    parts = ("watchword", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {module_of(path) for path in MODULES}


def room_of(module: str) -> str:
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "watchword" else ""


def shelf_of(module: str) -> int:
    return SHELVES.get(module.rpartition(".")[2].rpartition("_")[2], 0)


def imports(path: Path, *, at_start: bool = False) -> Iterator[str]:
    """What a module imports anywhere, or when it is imported itself."""
    tree = ast.parse(path.read_text())
    for node in tree.body if at_start else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            for alias in node.names:
                named = f"{node.module}.{alias.name}"
                yield named if named in KNOWN else node.module


def test_rooms_import_only_from_those_before_them() -> None:
    offenders = [
        f"{module_of(path)} imports {name}"
        for path in MODULES
        for name in imports(path)
        if not may_import(room_of(module_of(path)), name)
    ]
    assert offenders == []


def may_import(room: str, name: str) -> bool:
    top = name.partition(".")[0]
    if top != "watchword":
        return top in sys.stdlib_module_names or top in (ROOMS.get(room, {"httpcore", "httpx"}))
    if room == "client":
        return room_of(name) in {"client", ""} or name in FOR_CLIENTS
    if room == "cli" and room_of(name) == "client":
        return True
    return room_of(name) in {"", room} or ORDER.index(room_of(name)) < ORDER.index(room)


def test_shelves_import_nothing_that_stands_higher() -> None:
    offenders = [
        f"{module_of(path)} imports {name}"
        for path in MODULES
        for name in imports(path)
        if room_of(module_of(path)) not in {"app", "cli", "client"}
        and room_of(name) == room_of(module_of(path))
        and shelf_of(name) > shelf_of(module_of(path))
    ]
    assert offenders == []


def test_no_module_imports_itself_by_a_detour() -> None:
    arrows = {module_of(path): set(imports(path, at_start=True)) & KNOWN for path in MODULES}
    while leaves := [module for module, targets in arrows.items() if not targets]:
        for leaf in leaves:
            del arrows[leaf]
        for targets in arrows.values():
            targets.difference_update(leaves)
    assert arrows == {}


def test_commands_load_the_server_when_they_run_and_only_those_of_this_machine() -> None:
    commands = sorted((SOURCE / "cli").glob("*.py"))
    early = [
        f"{path.name} imports {name}" for path in commands for name in imports(path, at_start=True) if is_server(name)
    ]
    assert early == []
    users = {path.name for path in commands if any(name == "watchword.cli.local" for name in imports(path))}
    loaders = {path.name for path in commands if any(name == "watchword.app.wiring" for name in imports(path))}
    assert (users, loaders) == (LOCAL_COMMANDS, {"local.py"})


def test_commands_that_ask_a_server_load_only_packages_of_the_extra_cli() -> None:
    """Those of this machine do so until they run."""
    loaded = {
        name: set(imports(path, at_start=True)) for name, path in zip(map(module_of, MODULES), MODULES, strict=True)
    }
    offenders = []
    for path in sorted((SOURCE / "cli").glob("*.py")):
        seen: set[str] = set()
        found = set(imports(path, at_start=path.name in {*LOCAL_COMMANDS, "local.py"}))
        while found:
            seen |= found
            found = {deeper for name in found for deeper in loaded.get(name, ())} - seen
        packages = {name.partition(".")[0] for name in seen} - sys.stdlib_module_names - {"watchword", "httpx"}
        offenders += [f"{path.name} loads {name}" for name in sorted(packages.difference(EXTRAS["cli"]))]
    assert offenders == []


def is_server(name: str) -> bool:
    """Needs a database or a server's library, or is about one. Commands may load rules."""
    room, module = room_of(name), name.removeprefix("watchword.")
    heavy = room in {"admin", "app", "datahub", "index", "outbound", "stores", "http"} and module not in EAGER
    return heavy or module.endswith(SERVER_SHELVES) or module.endswith((".store", ".service", ".jobs"))


def test_contributing_lists_the_rooms_in_their_order_and_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = [
        word.removesuffix("/").removesuffix(".py")
        for word in re.findall(r"^\| `(\w+(?:/|\.py))` \|", text, re.MULTILINE)
    ]
    named = [room for room in ROOMS if room not in {"__main__", "setting_values"}]
    assert [one for one in listed if one in ROOMS and one not in {"store", "service"}] == named
    paths = re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|graphql|sql|js|md|yml))?)`", text)
    places = (SOURCE, ROOT, *SOURCE.iterdir())
    missing = [path for path in paths if not any((place / path).exists() for place in places)]
    assert missing == []


def test_only_settings_reads_the_environment() -> None:
    """The client also reads its own variables: it works without the server's settings."""
    readers = [str(p.relative_to(SOURCE)) for p in MODULES if any(w in p.read_text() for w in ("os.environ", "getenv"))]
    assert readers == ["client/profiles.py", "settings.py"]


def test_python_locks_have_hashes_and_no_urls() -> None:
    for lock in (ROOT / "requirements").glob("*.lock"):
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text


@pytest.mark.parametrize("folder", ["tests/clients/node", "requirements/biome"])
def test_node_locks_have_hashes_and_no_urls(folder: str) -> None:
    text = (ROOT / folder / "package-lock.json").read_text()
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
