"""Programs that only Go's module proxy has: each built once from its lock in tests/kubernetes, into `.nodes/go`."""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.clients import client_env
from tests.support.pages import ROOT
from tests.support.system import missing

MADE = ROOT / ".nodes/go"
NEEDED = (1, 26)


@functools.cache
def go_program(name: str) -> Path:
    """The program. The first build of kube-apiserver takes a quarter of an hour on two processors."""
    source, mark = ROOT / "tests/kubernetes" / name, MADE / f"{name}.made"
    wanted = hashlib.sha256((source / "go.mod").read_bytes() + (source / "go.sum").read_bytes()).hexdigest()
    # A kube-apiserver that is not told its version says that it is v0.0.0.
    version = re.search(r"^require k8s\.io/kubernetes (v\S+)$", (source / "go.mod").read_text(), re.MULTILINE)
    told = [f"-ldflags=-X=k8s.io/component-base/version.gitVersion={version[1]}"] if version else []
    MADE.mkdir(parents=True, exist_ok=True)
    with (MADE / f"{name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != wanted:
            command = [_go(), "build", "-mod=readonly", *told, "-o", f"{MADE}/", "tool"]
            env = os.environ | {"CGO_ENABLED": "0"}
            done = subprocess.run(command, cwd=source, env=env, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                missing(f"needs {name}, which Go did not build: {done.stderr[-500:]}")
            mark.write_text(wanted)
    return MADE / name


def _go() -> str | Path:
    """That of this machine, if it is new enough: Debian's is not."""
    found = shutil.which("go")
    if found:
        asked = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False)
        numbers = asked.stdout.strip().removeprefix("go").split(".")[:2]
        if tuple(int(number) for number in numbers if number.isdigit()) >= NEEDED:
            return found
    return client_env("go") / "bin/go"
