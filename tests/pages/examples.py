"""The examples of README.md and of the pages in docs/."""

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")))
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    page: str
    line: int
    language: str
    """Empty for shell commands, and for what programs print."""
    text: str

    @property
    def name(self) -> str:
        """What it begins with, which tells it from the others of its page."""
        return self.text.splitlines()[0].strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def examples_of(page: str) -> list[Example]:
    text = (ROOT / page).read_text()
    return [
        Example(page, text.count("\n", 0, found.start()) + 1, found[1], found[2]) for found in _BLOCK.finditer(text)
    ]
