"""`watchword` run in the test's own process, for tests that are not about processes, terminals or signals."""

import os
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from subprocess import CompletedProcess

from click.testing import CliRunner

from watchword.__main__ import Wiring
from watchword.cli import cli
from watchword.cli.run import run


def watchword(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, stdin: str | None = None
) -> "CompletedProcess[str]":
    """As `tests.support.server.watchword`, a thousand times cheaper."""
    unset = {name: None for name in os.environ if name.startswith("WATCHWORD_")}
    umask = os.umask(0o077)
    try:
        with (
            chdir(cwd or Path.cwd()),
            CliRunner().isolation(stdin or "", {**unset, **(env or {})}) as (stdout, stderr, _),
        ):
            try:
                run(cli, Wiring(), list(words))
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
            sys.stdout.flush()
            sys.stderr.flush()
            return CompletedProcess(words, code, stdout.getvalue().decode(), stderr.getvalue().decode())
    finally:
        os.umask(umask)
