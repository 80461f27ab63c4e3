from collections.abc import Iterator

import pytest

from penstock.records import kernel


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            kernel.COMPILED,
            id="compiled",
            marks=pytest.mark.skipif(kernel.COMPILED is None, reason="the extension is not built"),
        ),
        pytest.param(kernel.PURE, id="pure"),
    ],
)
def twin(request: pytest.FixtureRequest) -> Iterator[kernel.Kernel]:
    """Runs the tests that ask for it with each twin of the kernel in turn."""
    before = kernel.active
    kernel.active = request.param
    yield request.param
    kernel.active = before
