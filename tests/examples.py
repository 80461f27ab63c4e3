"""The number of examples of hypothesis tests: fewer in `make test`, more in `make simulate`."""

import os
from typing import Any, Final

from hypothesis import settings

SHARE: Final = float(os.environ.get("EXAMPLES", "0.2"))
EXAMPLES_MIN: Final = 20
"""No share makes fewer of them, unless a test asks for fewer."""


def scaled(count: int) -> int:
    return max(min(count, EXAMPLES_MIN), int(count * SHARE))


def examples(max_examples: int = 100, **options: Any) -> settings:
    return settings(max_examples=scaled(max_examples), **options)
