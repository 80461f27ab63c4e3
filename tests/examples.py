"""The number of examples of expensive hypothesis tests: fewer in `make test`, more in `make simulate`."""

import os

from hypothesis import settings

SHARE = float(os.environ.get("EXAMPLES", "0.3"))


def examples(count: int) -> settings:
    return settings(max_examples=max(10, int(count * SHARE)))
