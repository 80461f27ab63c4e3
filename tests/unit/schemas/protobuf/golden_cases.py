"""Cases with the results of Confluent's registry, whose classes were run on these schemas.

A result is null if the registry refuses the schema.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent / "golden"


def read_cases(name: str) -> Sequence[Mapping[str, Any]]:
    cases: Sequence[Mapping[str, Any]] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return cases
