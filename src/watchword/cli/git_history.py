"""The history of a git repository, for `watchword token scan`: every version of every file, and every commit message.

Only commands of git are used that run no program of the repository's configuration, and none may use the network.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

MESSAGE = "(commit message)"
_READ = 64 * 1024
# A hook of git sets variables that name another repository.
_GIT = (
    "env",
    *(f"--unset=GIT_{name}" for name in ("DIR", "COMMON_DIR", "WORK_TREE", "INDEX_FILE", "OBJECT_DIRECTORY")),
)
_GIT += ("GIT_ALLOW_PROTOCOL=none", "LC_ALL=C", "git")
_NO_PROGRAMS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
_NO_FILE = "160000"  # the mode of a submodule


class HistoryError(OSError):
    """The history cannot be read, or not all of it."""


class Version(NamedTuple):
    """What a commit adds or changes."""

    commit: str
    path: str
    read: Callable[[int], bytes]
    """Returns the next bytes, at most so many; none at the end."""


def repository_of(file: str) -> Path | None:
    """The repository that a file of a folder marks: `.git` of a worktree or submodule, else `HEAD` beside `objects`."""
    path = Path(file)
    is_marked = path.name == ".git" or (path.name == "HEAD" and (path.parent / "objects").is_dir())
    if not is_marked:
        return None
    return path.parent.parent if path.parent.name == ".git" else path.parent


def versions(repository: Path) -> Iterator[Version]:
    """Oldest first, each content once, also of commits that only a reflog still has. `HistoryError` at the end if
    something could not be read.
    """
    seen: set[str] = set()
    missing = 0
    with _Git(repository) as git:
        for commit, path, content in git.changes():
            if content not in seen:
                seen.add(content)
                with git.content(content) as read:
                    if read is None:
                        missing += 1
                    else:
                        if path == MESSAGE:
                            _skip_header(read)
                        yield Version(commit, path, read)
    if missing:
        raise HistoryError(0, f"{missing:,} objects are missing in the history", str(repository))


def _skip_header(read: Callable[[int], bytes]) -> None:
    """An empty line separates the header of a commit from its message."""
    line = b""
    while line != b"\n" and (byte := read(1)):
        line = byte if line.endswith(b"\n") else line + byte


class _Git:
    def __init__(self, repository: Path) -> None:
        if shutil.which("git") is None:
            raise HistoryError(0, "The history needs git, which is not installed", str(repository))
        self._repository = repository
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`

    def __enter__(self) -> Self:
        self._commits = self._start(None, "rev-list", "--all", "--reflog", "--topo-order", "--reverse")
        words = ("--stdin", "-r", "--root", "-m", "-z", "--no-renames", "--always")
        self._changes = self._start(self._commits.stdout, "diff-tree", *words)
        self._contents = self._start(subprocess.PIPE, "cat-file", "--batch")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        running = (self._contents, self._changes, self._commits)
        for process in running:
            if kind is not None:
                process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
        has_failed = sum(process.wait() != 0 for process in running) and kind is None
        with self._errors as errors:
            errors.seek(0)
            problem = errors.readline().decode(errors="replace").strip() or "git failed"
        if has_failed:
            raise HistoryError(0, f"The history cannot be read ({problem})", str(self._repository))

    def changes(self) -> Iterator[tuple[str, str, str]]:
        """The commit, the path and the id of each new content."""
        assert self._changes.stdout is not None
        fields, commit, last = _fields(self._changes.stdout), "", ""
        for field in fields:
            if not field.startswith(b":"):
                commit = field.decode().strip()
                if commit != last:  # a merge is compared with each parent
                    last = commit
                    yield commit, MESSAGE, commit
                continue
            path = os.fsdecode(next(fields))
            _, mode, _, content, _ = field.decode().split(" ")
            if mode != _NO_FILE and content.strip("0"):
                yield commit, path, content

    @contextmanager
    def content(self, name: str) -> Iterator[Callable[[int], bytes] | None]:
        """None: the object is missing."""
        asked, answers = self._contents.stdin, self._contents.stdout
        assert asked is not None
        assert answers is not None
        try:
            asked.write(f"{name}\n".encode())
            asked.flush()
        except BrokenPipeError:
            yield None
            return
        head = answers.readline().split()
        if len(head) != 3:  # id, type and size
            yield None
            return
        left = int(head[2])

        def read(most: int) -> bytes:
            nonlocal left
            piece = answers.read(min(most, left))
            left = left - len(piece) if piece else 0
            return piece

        yield read
        while left:
            read(_READ)
        answers.read(1)

    def _start(self, source: IO[bytes] | int | None, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - the words are ours
            [*_GIT, "-C", str(self._repository), *_NO_PROGRAMS, *words],
            stdin=subprocess.DEVNULL if source is None else source,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )


def _fields(stream: IO[bytes]) -> Iterator[bytes]:
    """What stands between zero bytes."""
    held = b""
    while piece := stream.read(_READ):
        *whole, held = (held + piece).split(b"\0")
        yield from whole
