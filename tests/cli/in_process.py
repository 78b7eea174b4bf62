"""Run `watchword` in the test's own process, for tests that are not about processes, terminals or signals."""

import os
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile

from click.testing import CliRunner

from tests.support import server
from watchword.cli import cli
from watchword.cli.run import run


def watchword(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, stdin: str | None = None
) -> "CompletedProcess[str]":
    """Like `tests.support.server.watchword`, without starting a process; `serve` still is one."""
    if words[:1] == ("serve",):
        return server.watchword(*words, env=env, cwd=cwd, stdin=stdin)
    unset = {name: None for name in os.environ if name.startswith("WATCHWORD_")}
    umask = os.umask(0o077)
    try:
        with (
            TemporaryFile() as given,
            chdir(cwd or Path.cwd()),
            CliRunner().isolation(given, {**unset, **(env or {})}) as (stdout, stderr, _),
        ):
            given.write((stdin or "").encode())
            given.seek(0)
            try:
                run(cli, list(words))
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
            sys.stdout.flush()
            sys.stderr.flush()
            return CompletedProcess(words, code, stdout.getvalue().decode(), stderr.getvalue().decode())
    finally:
        os.umask(umask)
