"""The types that the console's modules tell of themselves are true, by the strictest reading of the compiler."""

import subprocess
from pathlib import Path

from tests.support.clients import NODE, client_env
from tests.support.pages import ROOT
from tests.support.waiting import SECONDS

SETTINGS = ROOT / "tests/console/tsconfig.json"


def compiled(settings: Path) -> subprocess.CompletedProcess[str]:
    client_env("node")
    compiler = NODE / "node_modules/typescript/bin/tsc"
    command = ["node", str(compiler), "--project", str(settings)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_the_console_s_modules_keep_their_types() -> None:
    ran = compiled(SETTINGS)
    assert ran.returncode == 0, ran.stdout


def test_a_wrong_type_would_be_found(tmp_path: Path) -> None:
    told = '/** @param {number} count */\nconst twice = (count) => count * 2;\ntwice("two");\n'
    (tmp_path / "wrong.js").write_text(told)
    settings = (
        SETTINGS.read_text()
        .replace("../../src/watchword/console/**/*.js", "wrong.js")
        .replace(', "dom", "dom.iterable"', "")
    )
    (tmp_path / "tsconfig.json").write_text(settings)
    assert "TS2345" in compiled(tmp_path / "tsconfig.json").stdout


def test_the_console_has_no_module_of_others_and_each_is_short() -> None:
    modules = sorted((ROOT / "src/watchword/console").rglob("*.js"))
    assert modules
    for module in modules:
        text = module.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 400, module
        assert "://" not in text.replace("http://127.0.0.1", "").replace("https://api.example", ""), module
