"""Lazy imports for a package's public names (PEP 562), so that the package itself is cheap to import."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` for a package; `homes` maps its names to their modules (PEP 562).

    __getattr__, __dir__ = lazily(__name__, {"connect": "penstock.api.sync.connection"})
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)  # later lookups find it directly
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
