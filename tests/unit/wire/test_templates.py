"""Templates: messages that differ only in some numbers are encoded and decoded by position."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.templates import make_template

FIRST, LAST = {"b": -128, "h": -(2**15), "i": -(2**31), "q": -(2**63)}, {"b": 127, "h": 2**15 - 1, "i": 2**31 - 1}
LAST["q"] = 2**63 - 1
parts = st.lists(st.binary(min_size=1, max_size=9) | st.sampled_from("bhiq"), min_size=1, max_size=12)


@given(parts, st.data())
def test_a_template_decodes_what_it_encodes(parts: list[bytes | str], data: st.DataObject) -> None:
    def written(numbers: list[int]) -> bytes:
        left = iter(numbers)
        return b"".join(part if isinstance(part, bytes) else struct.pack(">" + part, next(left)) for part in parts)

    codes = [part for part in parts if isinstance(part, str)]
    numbers = [data.draw(st.integers(FIRST[code], LAST[code])) for code in codes]
    template = make_template(written([0] * len(codes)), written([-1] * len(codes)), codes)
    found = template.layout.unpack(written(numbers))
    assert [field for field in found if isinstance(field, int)] == numbers
    assert [field for field in found if isinstance(field, bytes)] == [
        field for field in template.fields if isinstance(field, bytes)
    ]
    assert template.layout.pack(*found) == written(numbers)
