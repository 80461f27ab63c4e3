"""Table of all source files, from the first sentence of each module docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock
from penstock.reference.tables import table


def file_map() -> str:
    """Returns one table for each package and sub-package, with each file and its purpose."""
    root = Path(penstock.__file__).parent
    packages = sorted(path.parent for path in root.rglob("__init__.py"))
    return "".join(_package(root, package) for package in packages)


def _package(root: Path, package: Path) -> str:
    name = package.relative_to(root.parent).as_posix()
    rows = table(("file", "purpose"), _rows(package))
    return f"\n### `{name}/`\n{first_sentence(package / '__init__.py')}\n\n{rows}"


def _rows(package: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(package.glob("*.py")):
        if path.name != "__init__.py":
            yield f"`{path.name}`", first_sentence(path)


def first_sentence(path: Path) -> str:
    """Returns the first sentence of a module's docstring, on one line; empty if the module has no docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence + dot.strip()
