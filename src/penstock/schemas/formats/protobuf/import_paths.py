"""Normalizes the paths of imports as Okio's `Path` does, which Wire uses: `./a//b.proto` is `a/b.proto`."""

import re
from typing import Final

_SLASHES: Final = re.compile(r"[/\\]")
_VOLUME: Final = re.compile(r"[a-zA-Z]:")


def normalize_import(path: str) -> str:
    """Returns the path without empty and `.` parts, with forward slashes."""
    body = path.lstrip("/\\")
    leading = len(path) - len(body)
    first = _SLASHES.search(path)
    is_windows = first is not None and first[0] == "\\"
    root = ""
    if leading:
        root = "/"
    elif is_windows and _VOLUME.match(path):
        end = 3 if first is not None and first.start() == 2 else 2
        root, body = path[:end].replace("\\", "/"), path[end:]
    parts: list[str] = []
    for part in _SLASHES.split(body):
        if part not in ("", ".") and not (part == ".." and root and not parts):
            parts.append(part)
    return root + "/".join(parts) or "."
