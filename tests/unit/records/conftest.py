import warnings
from collections.abc import Iterator

import pytest

from penstock.records import kernel

with warnings.catch_warnings():
    # kafka-python 3.0 loads its schemas in a way that Python 3.11 warns of, and warnings are errors here.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records  # noqa: F401

needs_extension = pytest.mark.skipif(
    kernel.COMPILED is None,
    reason="the extension is not built: python setup.py build_ext --inplace",
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kernel.COMPILED, id="compiled", marks=needs_extension),
        pytest.param(kernel.PURE, id="pure"),
    ],
)
def twin(request: pytest.FixtureRequest) -> Iterator[kernel.Kernel]:
    """Runs the tests that ask for it with each twin in turn."""
    before = kernel.active
    kernel.active = request.param
    yield request.param
    kernel.active = before
