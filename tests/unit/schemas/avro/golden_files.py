"""Cases with the results of Java's Avro 1.12.1 and Confluent's registry 8.5, by sentence.

`valid`: schemas with their canonical text, their normal form (null if there is none) and the text with all references
resolved. `invalid`: schemas that cannot be parsed. `new`: schemas that can, and whether they may be registered.
`differences`: readers and writers with the messages. `promotions`: primitive types that can be read as others.
"""

import json
from pathlib import Path
from typing import Any

from penstock.schemas.formats.avro import AvroSchema, parse


def golden(name: str) -> Any:
    """Returns the cases of one file."""
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text(encoding="utf-8"))


def parse_case(case: dict[str, Any]) -> AvroSchema:
    return parse(case["schema"], case.get("references", {}))
