"""The value of `sasl.jaas.config`: a Java login module with options, which Kafka's settings use for users. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.foundation.errors import InvalidConfig

_MODULE: Final = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION: Final = re.compile(
    r"""\s+([^\s="';]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s"';]+))""", re.DOTALL
)
_END: Final = re.compile(r"\s*;\s*")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_USER: Final = "user_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginModule:
    """A login module and its options, which contain passwords."""

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def simple_name(self) -> str:
        """Returns the name without its Java package."""
        return self.name.rpartition(".")[2]

    @property
    def users(self) -> dict[str, str]:
        """Returns the passwords of the users that the module defines with `user_NAME="PASSWORD"`, by user."""
        return {name.removeprefix(_USER): text for name, text in self.options.items() if name.startswith(_USER)}


def parse_jaas(setting: str, text: str) -> LoginModule:
    """Parses the value of a setting. Raises InvalidConfig, whose message contains no password.

    >>> parse_jaas("sasl.jaas.config", 'a.b.PlainLoginModule required username="eve" password="x\\\\"y";').options
    {'username': 'eve', 'password': 'x"y'}
    """
    start = _MODULE.match(text)
    if start is None:
        raise InvalidConfig(
            f"{setting} is not valid; expected a login module, for example "
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="NAME" password="PASSWORD";'
        )
    options: dict[str, str] = {}
    at = start.end()
    while (found := _OPTION.match(text, at)) is not None:
        name, double, single, bare = found.groups()
        if name in options:
            raise InvalidConfig(f"{setting} has the option {name} twice; remove one")
        quoted = double if double is not None else single
        options[name] = bare if quoted is None else _ESCAPE.sub(r"\1", quoted)
        at = found.end()
    if _END.fullmatch(text, at) is None:
        after = f"after the option {list(options)[-1]}" if options else f"after {start[2]}"
        raise InvalidConfig(f'{setting} is not valid {after}; expected options such as NAME="VALUE", and a final ";"')
    return LoginModule(name=start[1], options=options)
