"""References to secrets in the values of settings, as with Kafka's config providers: `${env:NAME}` for example."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.properties import read_properties

_REFERENCE: Final = re.compile(r"\$\{(env|file|dir):([^:}]+)(?::([^:}]+))?\}")
_EXPECTED: Final = "expected ${env:NAME}, ${file:PATH:PROPERTY}, ${file:PATH} or ${dir:FOLDER:FILE}"


def resolve(name: str, text: str) -> str:
    """Returns the value of a setting with its references replaced by what they stand for. Raises InvalidConfig.

    >>> os.environ["ORDERS_PASSWORD"] = "wonderland"
    >>> resolve("sasl.password", "${env:ORDERS_PASSWORD}")
    'wonderland'
    """
    if "${" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        kind, first, second = match.groups()
        if kind == "env":
            return _variable(name, first, second)
        return _content(name, kind, first, second)

    return _REFERENCE.sub(replace, text)


def resolve_all(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns settings with all references replaced. Raises InvalidConfig."""
    return {name: resolve(name, text) for name, text in settings.items()}


def _variable(name: str, variable: str, rest: str | None) -> str:
    if rest is not None:
        raise InvalidConfig(f"{name} has a reference that is not valid; {_EXPECTED}")
    if variable not in os.environ:
        raise InvalidConfig(f"{name} refers to the environment variable {variable}, which is not set")
    return os.environ[variable]


def _content(name: str, kind: str, path: str, rest: str | None) -> str:
    """Returns a property of a properties file, or the text of a file."""
    if kind == "file" and rest is not None:
        properties = read_properties(Path(path))
        if rest not in properties:
            raise InvalidConfig(f"{name} refers to {rest} in {path}, which has no such property")
        return properties[rest]
    if kind == "dir" and (rest is None or "/" in rest):
        raise InvalidConfig(f"{name} has a reference that is not valid; {_EXPECTED}")
    file = Path(path) if rest is None else Path(path, rest)
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise InvalidConfig(f"{name} refers to {file}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{name} refers to {file}, which is not UTF-8 text") from error
