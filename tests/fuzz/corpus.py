"""Seeds a fuzzer with inputs that were once slow, large or failing."""

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris


def run(fuzz: Callable[[bytes], None], seeds: Iterable[bytes]) -> None:
    """Fuzz as the command line says, beginning with seeds."""
    corpus = Path(tempfile.mkdtemp(prefix="fuzz-seeds-"))
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    # A second folder is read from; what is found goes to the first one, if there is any.
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    found = [] if folders else [tempfile.mkdtemp(prefix="fuzz-found-")]
    atheris.Setup([*sys.argv, *found, str(corpus)], fuzz)
    atheris.Fuzz()
