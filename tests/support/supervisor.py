"""Run a command, adopt the processes that it leaves behind, and end them all when another process ends.

Usage: supervisor.py OWNER FOLDER USER COMMAND…

Patroni starts PostgreSQL as a daemon, so `keeper.py` would lose it. OWNER is a process id: once that process is gone,
however it ended, the supervisor ends all its descendants and removes FOLDER. SIGTERM ends the descendants only. USER
runs the command if we are root; empty: we do. The supervisor exits when its last descendant does.
"""

import contextlib
import ctypes
import os
import pwd
import select
import shutil
import signal
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
SECONDS = 10.0


def main(owner: str, folder: str, user: str, *command: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit(f"cannot adopt processes: {os.strerror(ctypes.get_errno())}")
    try:
        ends = os.pidfd_open(int(owner))
    except ProcessLookupError:
        sys.exit(f"process {owner}, with which this command was to end, has ended")
    if os.fork() == 0:
        run(folder, user, *command)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=end_descendants).start())
    threading.Thread(target=watch, args=(ends,)).start()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    if select.select([ends], [], [], 0)[0]:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def run(folder: str, user: str, *command: str) -> None:
    os.setsid()
    if user:
        known = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(known.pw_gid)
        os.setuid(known.pw_uid)
    os.chdir(folder)
    os.execvp(command[0], command)


def watch(owner: int) -> None:
    select.select([owner], [], [])
    end_descendants()


def end_descendants() -> None:
    """Shut PostgreSQL down at once, so that it removes its shared memory; kill everything else."""
    deadline = time.monotonic() + SECONDS
    asked: set[int] = set()
    while found := descendants(os.getpid()):
        servers = [number for number in found if name_of(number) == "postgres"]
        for number in set(found) - set(servers):
            send(number, signal.SIGKILL)
        for number in servers:
            if time.monotonic() > deadline:
                send(number, signal.SIGKILL)
            elif number not in asked:
                asked.add(number)
                send(number, signal.SIGQUIT)
                send(number, signal.SIGCONT)
        time.sleep(0.05)


def descendants(ancestor: int) -> list[int]:
    """Without zombies, which the main thread reaps."""
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # the standard library is quick enough
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as read:  # noqa: PTH123  # the same
            state, parent = read.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(entry))
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def name_of(process: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{process}/comm") as read:  # noqa: PTH123  # the same
        return read.read().strip()
    return ""


def send(process: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, what)


if __name__ == "__main__":
    main(*sys.argv[1:])
