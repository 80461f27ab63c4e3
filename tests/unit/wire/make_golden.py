"""Makes the golden files: for every API the bytes of its messages in every version. Run by hand, from the root:

    python -m tests.unit.wire.make_golden

Run it when an API or a version is added, and read the difference: no line that was there may change. The
bytes come from an oracle, never from our own codec. A line is

    <message> <version> <sample> <maker> <sample as JSON> <bytes in hexadecimal>

where the sample is `full` (all fields set, arrays of two) or `bare` (nullable fields null, no tagged fields)
and the maker says whose bytes they are: `kio` or `kafka-python`, where the other and our plain encoder agree,
or `self` where neither knows the message (our own APIs): those are of the plain encoder, and a person should
compare them with the schema. A message without a body has a dash for its bytes.
"""

import json
import sys
from pathlib import Path
from typing import Any

from penstock.wire.schema import message_of

from .catalogue import MESSAGES, api_name
from .oracles import ORACLES
from .plain_encoder import encode_plainly
from .values import bare_sample, full_sample, to_plain

GOLDEN = Path(__file__).parent / "golden"
SAMPLES = {"full": full_sample, "bare": bare_sample}


def golden_bytes(message: Any, version: int) -> tuple[str, bytes]:
    """Returns the maker and its bytes; raises if two of the three makers differ."""
    made = [
        (oracle.name, oracle.encode(message, version)) for oracle in ORACLES if oracle.has(type(message), version)
    ]
    made.append(("self", encode_plainly(message, version)))
    if len({data for _, data in made}) > 1:
        shown = "\n".join(f"  {name}: {data.hex()}" for name, data in made)
        raise SystemExit(f"{message} v{version}: the oracles do not agree\n{shown}")
    return made[0]


def golden_lines(cls: type) -> list[str]:
    lines = []
    for version in message_of(cls).versions:
        for name, make in SAMPLES.items():
            message = make(cls, version)
            maker, data = golden_bytes(message, version)
            plain = json.dumps(to_plain(message, version), ensure_ascii=False, separators=(",", ":"))
            lines.append(f"{cls.__name__} {version} {name} {maker} {plain} {data.hex() or '-'}")
    return lines


def main() -> None:
    files: dict[str, list[str]] = {}
    for cls in MESSAGES:
        files.setdefault(api_name(cls), []).extend(golden_lines(cls))
    GOLDEN.mkdir(exist_ok=True)
    for name, lines in files.items():
        (GOLDEN / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"{sum(map(len, files.values()))} lines in {len(files)} files under {GOLDEN}\n")


if __name__ == "__main__":
    main()
