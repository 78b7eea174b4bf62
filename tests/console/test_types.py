"""The TypeScript compiler checks the console's modules in strict mode."""

import subprocess
from pathlib import Path

from tests.support.clients import NODE, node_program
from tests.support.pages import ROOT
from tests.support.waiting import SECONDS

SETTINGS = ROOT / "tests/console/tsconfig.json"


def compile_modules(settings: Path) -> subprocess.CompletedProcess[str]:
    compiler = NODE / "node_modules/typescript/bin/tsc"
    command = [str(node_program()), str(compiler), "--project", str(settings)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_console_modules_pass_the_type_check() -> None:
    ran = compile_modules(SETTINGS)
    assert ran.returncode == 0, ran.stdout


def test_type_check_reports_a_wrong_type(tmp_path: Path) -> None:
    told = '/** @param {number} count */\nconst twice = (count) => count * 2;\ntwice("two");\n'
    (tmp_path / "wrong.js").write_text(told)
    settings = (
        SETTINGS.read_text()
        .replace("../../src/watchword/console/**/*.js", "wrong.js")
        .replace(', "dom", "dom.iterable"', "")
    )
    (tmp_path / "tsconfig.json").write_text(settings)
    assert "TS2345" in compile_modules(tmp_path / "tsconfig.json").stdout


def test_console_loads_no_foreign_module_and_each_is_short() -> None:
    modules = sorted((ROOT / "src/watchword/console").rglob("*.js"))
    assert modules
    for module in modules:
        text = module.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 600, module
        assert "://" not in text.replace("http://127.0.0.1", "").replace("https://api.example", ""), module
