"""Rules for the console's modules: imports have no circle, and the schema has all that their GraphQL documents name."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from graphql import parse, validate

from watchword.app.graphql_schema import built_schema

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = ROOT / "src/watchword/console"
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted(CONSOLE.rglob("*.js"))}

IMPORT = re.compile(r'^(?:import|export) (?:\{([^}]*)\} from )?"(\.[^"]+)";$', re.MULTILINE)
CONSTANT = re.compile(r'^\s*(?:export )?const (\w+) =\s+(?:`([^`]*)`|"([^"\n]*)"|([\d_]+));$', re.MULTILINE)
DOCUMENT = re.compile(r"(?:query|mutation) \w+\s*[({]|\{\s*\w+\s*[({]")
SENT = re.compile(r"(?<!function )\bgraphql\(\s*(?:\w+ \? (\w+) : )?(\w+)")


def imports(path: Path) -> dict[Path, set[str]]:
    """The names that the module takes from each other module, which is loaded before it."""
    return {
        (path.parent / other).resolve(): set(re.findall(r"\w+", names))
        for names, other in IMPORT.findall(SOURCES[path])
    }


def constants(path: Path) -> dict[str, str]:
    return {
        name: words or text or digits.replace("_", "") for name, words, text, digits in CONSTANT.findall(SOURCES[path])
    }


def text_of(path: Path, name: str) -> str:
    """The constant of this module, or of the one it is imported from, with the constants in its place that it names."""
    home = next((other for other, names in imports(path).items() if name in names), path)
    return re.sub(r"\$\{(\w+)\}", lambda found: text_of(home, found[1]), constants(home)[name])


DOCUMENTS = [(path, name) for path in SOURCES for name, text in constants(path).items() if DOCUMENT.match(text)]


def test_console_has_no_long_line() -> None:
    """The formatter breaks neither texts nor comments."""
    long = [
        f"{path.name}:{at}"
        for path, text in SOURCES.items()
        for at, line in enumerate(text.splitlines(), 1)
        if len(line) > 120
    ]
    assert long == []


def test_console_imports_have_no_circle() -> None:
    graph = {path: set(imports(path)) for path in SOURCES}
    assert set[Path]().union(*graph.values()) <= graph.keys()
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(("path", "name"), DOCUMENTS, ids=lambda part: part.stem if isinstance(part, Path) else part)
def test_schema_has_what_a_document_of_the_console_names(path: Path, name: str) -> None:
    assert validate(built_schema(), parse(text_of(path, name))) == []


def test_every_document_that_the_console_sends_is_validated() -> None:
    sent = [(path, name) for path, text in SOURCES.items() for names in SENT.findall(text) for name in names if name]
    homes = {(path, name) for path, name in DOCUMENTS}
    homes |= {
        (path, name)
        for path in SOURCES
        for other, names in imports(path).items()
        for name in names
        if (other, name) in homes
    }
    assert [f"{path.name}: {name}" for path, name in sent if (path, name) not in homes] == []
