"""The files of the audit log: JSON lines, written by a thread, and deleted when there are too many."""

import json
import logging
import os
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

logger = logging.getLogger(__name__)

PENDING_MAX: Final = 10_000
"""Maximum number of events that wait to be written; more are lost, and counted."""
FILE_BYTES_MAX: Final = 16 << 20
PREFIX: Final = "audit-"
SUFFIX: Final = ".jsonl"


class AuditFile:
    """Appends events to the newest file of a folder. Only its owner may read the files."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """`bytes_max`: of all files together; the oldest are deleted."""
        self._folder = folder
        self._files_max = max(2, bytes_max // FILE_BYTES_MAX)
        self._pending: deque[dict[str, Any]] = deque()
        self._wake = threading.Event()
        self._is_closed = False
        self._has_failed = False
        self.lost = 0
        """Number of events that were not written."""
        self._reported_lost = 0
        self._thread = threading.Thread(target=self._run, name="penstock-audit", daemon=True)
        self._thread.start()

    def write(self, event: dict[str, Any]) -> None:
        """Has the event written soon. Never waits."""
        if len(self._pending) >= PENDING_MAX:
            self.lost += 1
            return
        self._pending.append({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **event})
        self._wake.set()

    def close(self) -> None:
        """Writes what is pending."""
        self._is_closed = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        file: IO[bytes] | None = None
        while not (self._is_closed and not self._pending):
            self._wake.wait()
            self._wake.clear()
            try:
                file = self._write_pending(file)
            except OSError as error:
                self._fail(error)
                file = None
            if self._pending:
                self._wake.set()
        if file is not None:
            file.close()

    def _write_pending(self, file: IO[bytes] | None) -> IO[bytes]:
        if file is None or file.tell() >= FILE_BYTES_MAX:
            if file is not None:
                file.close()
            file = self._open_next()
        lines = []
        if self.lost > self._reported_lost:
            count, self._reported_lost = self.lost - self._reported_lost, self.lost
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            lines.append({"time": now, "event": "lost", "count": count})
        while self._pending and len(lines) < PENDING_MAX:
            lines.append(self._pending.popleft())
        try:
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            file.flush()
        except OSError:
            self.lost += len(lines)
            raise
        self._has_failed = False
        return file

    def _open_next(self) -> IO[bytes]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known = sorted(self._folder.glob(f"{PREFIX}*{SUFFIX}"))
        for oldest in known[: max(0, len(known) + 1 - self._files_max)]:
            oldest.unlink()
        name = f"{PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{SUFFIX}"
        return os.fdopen(os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def _fail(self, error: OSError) -> None:
        """The disk is full, for example: what is pending is lost."""
        self.lost += len(self._pending)
        self._pending.clear()
        if not self._has_failed:
            self._has_failed = True
            logger.error("audit_log_not_written folder=%s reason=%r", self._folder, error.strerror or str(error))
