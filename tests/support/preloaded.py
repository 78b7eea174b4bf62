"""`watchword` processes, forked from one that has loaded the code.

To load the code takes most of the time of a short command. So each pytest process starts one process that loads it
once (`main`) and forks for each command; a second one has a clock that tests set. The fork is a process like any other:
it has its own files, environment, folder, session and exit code, and it runs `python -m watchword` from its beginning.
It is killed when the process that asked for it is gone.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20
PID_BYTES = 10
MODULES = (
    "watchword.stores", "watchword.app.wiring", "watchword.app.server", "granian", "uvloop",
    "asyncpg", "apsw", "httpx", "rich.console", "rich.progress", "rich.table", "rich.text", "click.shell_completion",
)  # fmt: skip
"""Loaded first, in this order; then every other module of the package."""
AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC", "MALLOC", "FAKETIME")
"""Variables that Python and its libraries read as they start."""
CLOCK = {"LD_PRELOAD", "FAKETIME_NO_CACHE", "FAKETIME_DONT_FAKE_MONOTONIC"}
"""Variables of `tests.support.clock`: commands with them are forked from a process of their own."""
CLOCK_FILE = "FAKETIME_TIMESTAMP_FILE"
"""Read anew each time, so a fork may have another one."""


class ForkedProcess:
    """The part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, status: int, words: Sequence[str]) -> None:
        self.pid = pid
        self.args = list(words)
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def send_signal(self, which: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, which)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            said = os.read(self._status, 100)
            os.close(self._status)
            assert said, "the process that forks is gone"
            self.returncode = int(said)
        return self.returncode


def may_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork behaves as a new process with this environment."""

    theirs, ours = _read_at_start(environment).items(), _read_at_start(without_settings()).items()
    return theirs == ours or (CLOCK_FILE in environment and {name for name, _ in theirs ^ ours} == CLOCK)


def _read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(AT_START) and name != CLOCK_FILE}


def without_settings() -> dict[str, str]:
    """The environment of this process without settings of Watchword."""
    return {name: value for name, value in os.environ.items() if not name.startswith("WATCHWORD_")}


def fork(
    words: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    env: Mapping[str, str],
    cwd: Path | None = None,
    new_session: bool = False,
    terminal: bool = False,
) -> ForkedProcess:
    """Start `python -m watchword WORDS`; with `terminal`, `stdin` is a terminal, which it takes for its own."""
    request = {
        "words": list(words),
        "env": dict(env),
        "cwd": str(cwd or Path.cwd()),
        "new_session": new_session,
        "terminal": terminal,
    }
    return _loaded(env).fork(request, (stdin, stdout, stderr))


def run(
    words: Sequence[str], *, env: Mapping[str, str], cwd: Path | None, stdin: str | None, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `python -m watchword WORDS` to its end."""
    files = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.write(files[0], (stdin or "").encode())
        os.lseek(files[0], 0, os.SEEK_SET)
        process = fork(words, stdin=files[0], stdout=files[1], stderr=files[2], env=env, cwd=cwd)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        out, err = (_read(file) for file in files[1:])
    finally:
        for file in files:
            os.close(file)
    return subprocess.CompletedProcess(list(words), code, out, err)


def folder_with_program() -> Path:
    """A folder for `PATH` whose `watchword` forks; it cannot take over a terminal."""
    return _loaded(without_settings()).program()


def _read(file: int) -> str:
    size = os.fstat(file).st_size
    return os.pread(file, size, 0).decode().replace("\r\n", "\n")


class _Loaded:
    """The process that has loaded the code, and the socket at which it takes requests."""

    def __init__(self, read_at_start: Mapping[str, str]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="watchword-preloaded-"))
        clock_file = self._folder / "clock"
        clock_file.write_text("+0\n")
        self._address = str(self._folder / "socket")
        alive, self._alive = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
            requests.bind(self._address)
            requests.listen(100)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(requests.fileno()), str(alive)],
                pass_fds=[requests.fileno(), alive], stdin=subprocess.DEVNULL,
                env={**without_settings(), **read_at_start, CLOCK_FILE: str(clock_file)},
                start_new_session=True,
            )  # fmt: skip
        os.close(alive)
        atexit.register(self._close)

    def program(self) -> Path:
        """A folder with a `watchword` that forks, for shells."""
        made = self._folder / "bin" / "watchword"
        if not made.exists():
            made.parent.mkdir()
            made.write_text(PROGRAM.format(python=sys.executable, address=self._address))
            made.chmod(0o755)
        return made.parent

    def fork(self, request: Mapping[str, Any], files: tuple[int, int, int]) -> ForkedProcess:
        status, theirs = os.pipe()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
                asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
                asking.connect(self._address)
                socket.send_fds(asking, [json.dumps(request).encode()], [*files, theirs])
        finally:
            os.close(theirs)
        said = os.read(status, PID_BYTES)  # and not the exit code, which follows
        assert said, "the process that forks is gone"
        return ForkedProcess(int(said), status, request["words"])

    def _close(self) -> None:
        os.close(self._alive)
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


PROGRAM = """\
#!{python} -IS
import os, signal, socket, sys

asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    asking.connect("{address}")
except OSError:  # another user
    os.execv("{python}", ["{python}", "-m", "watchword", *sys.argv[1:]])
import json

status, theirs = os.pipe()
request = {{"words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}
socket.send_fds(asking, [json.dumps(request).encode()], [0, 1, 2, theirs])
os.close(theirs)
pid = int(os.read(status, 10))

def pass_on(which, _):
    try:
        os.kill(pid, which)
    except ProcessLookupError:
        pass  # it has ended, and its exit code follows

for which in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(which, pass_on)
for file in (0, 1):  # so that a pipe ends when the command closes it
    os.close(file)
code = int(os.read(status, 100) or 1)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def _loaded(environment: Mapping[str, str]) -> _Loaded:
    read_at_start = _read_at_start(environment)
    with _first:
        key = tuple(sorted(read_at_start.items()))
        if key not in _made:
            _made[key] = _Loaded(read_at_start)
        return _made[key]


_first = threading.Lock()
_made: dict[tuple[tuple[str, str], ...], _Loaded] = {}


# What follows runs in the process that forks.


def main() -> None:
    requests, alive = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    _load()
    become(_await(requests, alive))
    try:
        runpy.run_module("watchword", run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        if isinstance(leaving.code, int | None):
            _leave(leaving.code or 0)
        raise


def _leave(code: int) -> None:
    """End as the interpreter does, without taking all modules apart first, which takes longer than most commands."""
    threading._shutdown()  # type: ignore[attr-defined] # no public name
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def _load() -> None:
    sys.path.pop(0)  # the folder of this file
    for name in MODULES:
        importlib.import_module(name)
    import watchword

    for module in pkgutil.walk_packages(watchword.__path__, "watchword."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from watchword.app.graphql_schema import built_schema

    built_schema()  # a fifth of the time of a start of a server
    assert threading.active_count() == len([*Path("/proc/self/task").iterdir()]) == 1, (
        "a thread does not survive a fork"
    )


def _await(requests: socket.socket, alive: int) -> dict[str, Any]:
    """Fork for each request, tell the exit codes; returns in each fork, with its request and its files."""
    gc.collect()
    gc.freeze()
    awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    poll = select.poll()
    for file in (requests.fileno(), alive, awake):
        poll.register(file, select.POLLIN)
    while True:
        ready = {file for file, _ in poll.poll()}
        if awake in ready:
            os.read(awake, 4096)
            _tell_exit_codes(children, poll)
        for pid, status in children.items():
            if status in ready or alive in ready:  # nobody is left to be told
                os.kill(pid, signal.SIGKILL)
        if alive in ready:
            os._exit(0)
        if requests.fileno() in ready:
            asked, _ = requests.accept()
            with asked:
                message, files, *_ = socket.recv_fds(asked, MOST_BYTES, 4)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                request: dict[str, Any] = json.loads(message)
                return request | {"files": files[:3]}
            children[pid] = files[3]
            poll.register(files[3], 0)
            with suppress(BrokenPipeError):
                os.write(files[3], b"%*d" % (PID_BYTES, pid))
            for file in files[:3]:
                os.close(file)


def _tell_exit_codes(children: dict[int, int], poll: select.poll) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        asker = children.pop(pid)
        poll.unregister(asker)
        with suppress(BrokenPipeError):
            os.write(asker, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(asker)


def become(request: dict[str, Any]) -> None:
    """What the interpreter does at its start."""
    if request.get("new_session"):
        os.setsid()
    if request.get("terminal"):
        os.login_tty(request["files"][0])
        signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        for number, file in enumerate(request["files"]):
            os.dup2(file, number)
    os.closerange(3, min(1 << 16, os.sysconf("SC_OPEN_MAX")))
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.path.insert(0, request["cwd"])
    sys.argv = ["watchword", *request["words"]]
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        stream = _stream(number, mode, getattr(sys, f"__{name}__"))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, mode: str, old: TextIOWrapper) -> TextIOWrapper:
    raw = open(number, mode + "b", buffering=-1, closefd=False)  # noqa: SIM115 - a number, for good
    lines = mode == "w" and (number == 2 or os.isatty(number))
    return TextIOWrapper(raw, old.encoding, old.errors, line_buffering=lines)


if __name__ == "__main__":
    main()
