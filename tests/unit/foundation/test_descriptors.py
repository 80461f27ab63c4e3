"""How file descriptors are shared between their users."""

import os
import resource
from collections.abc import Iterator

import pytest

from penstock.foundation import descriptors
from penstock.foundation.descriptors import Reserve


@pytest.fixture
def opened() -> Iterator[list[int]]:
    """Descriptors up to those that new files leave to others."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(600, before[1]), before[1]))
    found = [os.open(os.devnull, os.O_RDONLY) for _ in range(descriptors.available(Reserve.NEW_FILES))]
    yield found
    for each in found:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_there_is_room_until_as_many_are_in_use_as_may_be(opened: list[int]) -> None:
    assert len(opened) > 100
    assert descriptors.available(Reserve.NEW_FILES) == 0
    assert descriptors.available(Reserve.KAFKA_CONNECTIONS) > 0


def test_a_low_number_that_is_free_again_is_room_for_one(opened: list[int]) -> None:
    os.close(opened.pop(0))
    assert descriptors.available(Reserve.NEW_FILES) == 1


def test_a_descriptor_with_a_low_number_may_be_one_of_the_last(opened: list[int]) -> None:
    if not os.stat("/proc/self/fd").st_size:
        pytest.skip("this kernel does not tell how many descriptors are in use; Linux does from 6.2 on")
    low = opened.pop(0)
    os.close(low)
    again = os.open(os.devnull, os.O_RDONLY)
    opened.insert(0, again)
    assert again == low
    assert not descriptors.is_scarce(again, Reserve.NEW_FILES)
    opened.append(os.open(os.devnull, os.O_RDONLY))
    assert descriptors.is_scarce(again, Reserve.NEW_FILES)


def test_where_the_kernel_does_not_tell_descriptors_are_counted(
    opened: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_count_in_use", lambda: 0)
    os.close(opened.pop(0))
    os.close(opened.pop(0))
    assert descriptors.available(Reserve.NEW_FILES) == 1  # one is used to list them
    assert descriptors.is_scarce(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1, Reserve.NEW_FILES)
