"""Become PostgreSQL, as a user who may run it, and leave a watcher behind who ends it when another process ends.

Usage: keeper.py OWNER FOLDER USER COMMAND…

OWNER is a process id. Once that process is gone, however it ended, the server is shut down and FOLDER removed. USER is
whom we become if we are root, which PostgreSQL refuses to run as; empty, if we are not. The server keeps our process
id, parent and streams. The kernel's own signal at a parent's death would not do: it follows the thread that started
us, and whoever shares a server has another parent.
"""

import contextlib
import os
import pwd
import select
import shutil
import signal
import sys

SECONDS = 10.0  # an immediate shutdown takes 5 when a child does not listen


def main(owner: str, folder: str, user: str, *command: str) -> None:
    watch(int(owner), folder)
    if user:
        known = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(known.pw_gid)
        os.setuid(known.pw_uid)
    os.chdir(folder)
    os.execv(command[0], command)


def watch(owner: int, folder: str) -> None:
    try:
        ends = os.pidfd_open(owner)
    except ProcessLookupError:
        sys.exit(f"process {owner}, with which this server was to end, has ended")
    server, number = os.pidfd_open(os.getpid()), os.getpid()
    if (first := os.fork()) != 0:
        os.waitpid(first, 0)
        return
    os.setsid()  # Ctrl-C is for the run
    if os.fork() != 0:
        os._exit(0)  # so that the watcher is no child of the server's, which it would be asked about
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    ended, _, _ = select.select([server, ends], [], [])
    if server not in ended:
        end(server, number)
    # A server may end first because the owner's connections do; more often it is one that is to be started again.
    if select.select([ends], [], [], 2.0)[0]:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def end(server: int, number: int) -> None:
    """Shut down at once; kill what does not end. Asked first, it gives its shared memory back."""
    signal.pidfd_send_signal(server, signal.SIGQUIT)
    for process in [number, *children(number)]:  # a paused one hears nothing but SIGKILL
        send(process, signal.SIGCONT)
    if not select.select([server], [], [], SECONDS)[0]:
        left = children(number)
        signal.pidfd_send_signal(server, signal.SIGKILL)
        for process in left:
            send(process, signal.SIGKILL)
        select.select([server], [], [])


def children(parent: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # nothing but the standard, and quick
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as read:  # noqa: PTH123  # the same
            if int(read.read().rpartition(b")")[2].split()[1]) == parent:
                found.append(int(name))
    return found


def send(process: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, what)


if __name__ == "__main__":
    main(*sys.argv[1:])
