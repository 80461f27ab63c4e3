"""Runs tests of the column codecs with the compiled loops and with the pure Python ones."""

from collections.abc import Iterator

import pytest

from penstock.schemas.columns import kernel

NOT_BUILT = pytest.mark.skipif(kernel.COMPILED is None, reason="the extension is not built")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kernel.COMPILED, id="compiled", marks=NOT_BUILT),
        pytest.param(kernel.PURE, id="pure"),
    ],
)
def twin(request: pytest.FixtureRequest) -> Iterator[kernel.Kernel]:
    """Runs the tests that ask for it with each twin of the kernel in turn."""
    before = kernel.active
    kernel.active = request.param
    yield request.param
    kernel.active = before
