"""The file of contexts: named sets of options for one cluster each, and which one is in use.

A context stands for environment variables: commands get its options as if these were set.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.foundation.errors import PenstockError

VARIABLES: Final[Mapping[str, str]] = {
    "bootstrap": "PENSTOCK_BOOTSTRAP",
    "command_config": "PENSTOCK_COMMAND_CONFIG",
    "endpoint": "PENSTOCK_ENDPOINT",
    "registry": "PENSTOCK_REGISTRY",
    "aws_profile": "AWS_PROFILE",
}
"""The environment variables that options of a context stand for."""
CONTEXT_VARIABLE: Final = "PENSTOCK_CONTEXT"
FILE_VARIABLE: Final = "PENSTOCK_CONTEXTS"


class ContextFailed(PenstockError):
    """A context does not exist, or the file of contexts cannot be used."""


def contexts_file() -> Path:
    """Returns where the file is: PENSTOCK_CONTEXTS, or penstock/contexts.json in the user's configuration folder."""
    if given := os.environ.get(FILE_VARIABLE):
        return Path(given)
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "penstock" / "contexts.json"


@dataclass(slots=True, kw_only=True)
class Contexts:
    """All contexts."""

    file: Path
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)
    current: str = ""
    """The context that commands use; empty for none."""

    @classmethod
    def load(cls) -> "Contexts":
        """Reads the file; without one there are no contexts. Raises ContextFailed."""
        file = contexts_file()
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls(file=file)
        except (OSError, ValueError) as error:
            raise ContextFailed(f"cannot read the contexts in {file}: {error}; correct or remove the file") from error
        if not _is_valid(content):
            raise ContextFailed(f"{file} is not a file of contexts; correct or remove it")
        return cls(file=file, by_name=content["contexts"], current=content["current"])

    def save(self) -> None:
        """Replaces the file, which only the user can read. Raises ContextFailed."""
        content = json.dumps({"current": self.current, "contexts": self.by_name}, indent=2, ensure_ascii=False)
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.file.parent, prefix=self.file.name)
            with open(handle, "w", encoding="utf-8") as file:
                file.write(content + "\n")
            os.replace(name, self.file)
        except OSError as error:
            raise ContextFailed(f"cannot write {self.file}: {error.strerror or error}") from error

    def find(self, name: str) -> dict[str, str]:
        """Returns the options of a context. Raises ContextFailed."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none; create one with `penstock context create`"
            raise ContextFailed(f"there is no context {name!r}; known: {known}")
        return self.by_name[name]


def apply_context(name: str | None) -> None:
    """Sets the environment variables of a context, by default of the one in use, unless they are set."""
    if name is None:
        name = os.environ.get(CONTEXT_VARIABLE)
    contexts = Contexts.load()
    name = contexts.current if name is None else name
    if not name:
        return
    for option, text in contexts.find(name).items():
        os.environ.setdefault(VARIABLES[option], text)
    os.environ[CONTEXT_VARIABLE] = name


def _is_valid(content: Any) -> bool:
    if not isinstance(content, dict) or not isinstance(content.get("contexts"), dict):
        return False
    for options in content["contexts"].values():
        if not isinstance(options, dict) or not options.keys() <= VARIABLES.keys():
            return False
        if not all(isinstance(text, str) for text in options.values()):
            return False
    return isinstance(content.get("current"), str)
