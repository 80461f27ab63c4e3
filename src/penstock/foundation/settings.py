"""Settings as data: each package declares a table of settings; values are parsed and validated here."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class Kind(IntEnum):
    """The type of a setting, with its code in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """A text that is never shown."""


_WIDTH: Final = {Kind.SHORT: 2**15, Kind.INT: 2**31, Kind.LONG: 2**63}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The definition of one setting.

    >>> Setting(name="retention.ms", kind=Kind.LONG, default="-1", minimum=-1, doc="…").parse("60000")
    60000
    """

    name: str
    kind: Kind
    default: str
    doc: str
    minimum: float | None = None
    """Minimum value of a number; minimum number of entries of a list."""
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """Regular expression that the whole value must match; `form` describes it in words."""
    form: str = ""
    broker_name: str | None = None
    """Name of the broker setting that is the default of this topic setting; None if there is none."""

    def parse(self, text: str | None) -> Any:
        """Returns the parsed value of `text`. Raises InvalidConfig with the expected values in its message."""
        if text is None:
            raise InvalidConfig(f"{self.name} has no value; {self._expected()}")
        text = text.strip()
        try:
            value = self._convert(text)
        except ValueError:
            raise InvalidConfig(f"{self.name}={text!r} is not allowed; {self._expected()}") from None
        self._check(value, text)
        return value

    def _convert(self, text: str) -> Any:
        match self.kind:
            case Kind.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower())
            case Kind.STRING | Kind.PASSWORD:
                return text
            case Kind.LIST:
                return tuple(part.strip() for part in text.split(",") if part.strip())
        if "_" in text or not text.isascii():  # only Python parses these as numbers
            raise ValueError(text)
        return float(text) if self.kind is Kind.DOUBLE else int(text)

    def _check(self, value: Any, text: str) -> None:
        if self.kind is Kind.BOOLEAN:
            good = value is not None
        elif self.kind is Kind.LIST:
            good = len(value) >= (self.minimum or 0)
            good = good and (not self.choices or all(part in self.choices for part in value))
        elif self.kind is Kind.PASSWORD:
            good = True
        elif self.kind is Kind.STRING:
            good = not self.choices or value in self.choices
            good = good and (not self.pattern or re.fullmatch(self.pattern, value) is not None)
        else:
            width = _WIDTH.get(self.kind)
            good = (width is None or -width <= value < width) and value == value
            good = good and (self.minimum is None or value >= self.minimum)
            good = good and (self.maximum is None or value <= self.maximum)
        if not good:
            raise InvalidConfig(f"{self.name}={text!r} is not allowed; {self._expected()}")

    def _expected(self) -> str:
        if self.choices:
            several = "a list of " if self.kind is Kind.LIST else ""
            several += f"at least {self.minimum:g} of " if several and self.minimum else ""
            return f"expected {several}{' or '.join(self.choices)}"
        if self.form:
            return f"expected {self.form}"
        bounds = []
        if self.minimum is not None:
            bounds.append(f"at least {self.minimum}")
        if self.maximum is not None:
            bounds.append(f"at most {self.maximum}")
        names = {
            Kind.BOOLEAN: "true or false",
            Kind.STRING: "a text",
            Kind.DOUBLE: "a number",
            Kind.LIST: "a list",
        }
        return "expected " + " ".join([names.get(self.kind, "a whole number"), *bounds])


class Table:
    """The setting definitions of one package, by name."""

    def __init__(self, settings: Iterable[Setting]) -> None:
        self.by_name: Final[dict[str, Setting]] = {entry.name: entry for entry in settings}

    def __iter__(self) -> Any:
        return iter(self.by_name.values())

    def get(self, name: str) -> Setting:
        found = self.by_name.get(name)
        if found is None:
            raise InvalidConfig(f"unknown setting {name!r}; known are {', '.join(sorted(self.by_name))}")
        return found

    def parse(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Returns the parsed values of all settings, given or default. Raises InvalidConfig for unknown names."""
        for name in values:
            self.get(name)
        return {name: entry.parse(values.get(name, entry.default)) for name, entry in self.by_name.items()}


def number(name: str, default: int, minimum: int, doc: str, kind: Kind = Kind.INT) -> Setting:
    """Returns the definition of an integer setting."""
    return Setting(name=name, kind=kind, default=str(default), minimum=minimum, doc=doc)


def switch(name: str, default: str, doc: str) -> Setting:
    """Returns the definition of a boolean setting."""
    return Setting(name=name, kind=Kind.BOOLEAN, default=default, doc=doc)
