"""Where things are in requests and answers that are encoded beforehand: the generator and the floor go by it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Positions count from after the length; answers are hex, whole but for what the floor patches in."""

    batch_at: int
    batch_bytes: int
    batch_records: int
    produce_answer: str
    base_offset_at: int
    fetch_offset_at: int
    fetch_head: str
    fetch_tail: str

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> "Layout":
        return cls(**json.loads(path.read_text()))
