"""A clock that a test sets: a server's own time, ahead of the machine's by as much as a file says."""

import importlib.util
from pathlib import Path

LIBRARY = "vendor/libfaketime/src/libfaketime.so.1"


class SetClock:
    """`Server(folder, env=clock.env)`. It goes on by itself; `advance` makes it jump, while the server runs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "ahead"
        self.ahead = 0
        self.advance(0)

    @property
    def env(self) -> dict[str, str]:
        spec = importlib.util.find_spec("libfaketime")
        assert spec is not None
        assert spec.origin is not None
        return {
            "LD_PRELOAD": str(Path(spec.origin).parent / LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def advance(self, seconds: int) -> None:
        self.ahead += seconds
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"+{self.ahead}\n")
        draft.replace(self._file)
