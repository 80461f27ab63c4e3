"""Where the harness keeps what it makes: everything below bench/.cache, nothing elsewhere."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

BENCH: Final = Path(__file__).resolve().parent
CACHE: Final = BENCH / ".cache"


class NotRun(Exception):
    """A question cannot be asked on this machine; the text says why, and goes into the report."""


def cache_folder(name: str) -> Path:
    """A folder that is kept from run to run."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A folder on the same disk for all servers, gone afterwards."""
    CACHE.mkdir(exist_ok=True)
    folder = Path(mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
