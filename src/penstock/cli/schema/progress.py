"""A progress bar for commands that handle many schemas."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(label: str, total: int, *, is_wanted: bool) -> Iterator[Callable[[], None]]:
    """Yields a function that advances a progress bar on stderr by one; a no-op unless `is_wanted` and stderr is a
    terminal."""
    if not is_wanted or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda: progress.advance(task)
