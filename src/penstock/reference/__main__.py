"""Writes the generated tables of the documentation, or checks that they are up to date."""

import sys
from pathlib import Path

from penstock.reference.blocks import generated


def main(arguments: list[str]) -> int:
    stale = []
    for path in sorted(Path("docs").glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = generated(before)
        if after != before:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(after, encoding="utf-8")
    outcome = "not up to date; run `make docs`" if "--check" in arguments else "written"
    for path in stale:
        sys.stdout.write(f"{path}: {outcome}\n")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
