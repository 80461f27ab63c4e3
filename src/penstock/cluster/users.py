"""Users of the cluster and their credentials, as they are kept in the store. Pure."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.cluster import keys
from penstock.foundation.errors import UnacceptableCredential
from penstock.foundation.scram import ScramCredential, ScramMechanism

NAME_CHARS_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user and its SCRAM credentials, by mechanism. A user without credentials does not exist."""

    name: str
    scram: Mapping[ScramMechanism, ScramCredential] = field(repr=False)

    def dump(self) -> bytes:
        """Returns the user as a value for the store."""
        return keys.encode(
            {
                "scram": {
                    mechanism.sasl_name: {
                        "salt": b64encode(one.salt).decode(),
                        "stored_key": b64encode(one.stored_key).decode(),
                        "server_key": b64encode(one.server_key).decode(),
                        "iterations": one.iterations,
                    }
                    for mechanism, one in self.scram.items()
                }
            }
        )

    @classmethod
    def read(cls, name: str, value: Mapping[str, Any]) -> "User":
        """Parses the value of a user's key. Mechanisms of newer versions are ignored."""
        known = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
        return cls(
            name=name,
            scram={
                known[mechanism]: ScramCredential(
                    salt=b64decode(one["salt"]),
                    stored_key=b64decode(one["stored_key"]),
                    server_key=b64decode(one["server_key"]),
                    iterations=one["iterations"],
                )
                for mechanism, one in value["scram"].items()
                if mechanism in known
            },
        )


def check_user_name(name: str) -> None:
    """Raises UnacceptableCredential if a user cannot have this name."""
    if not name:
        raise UnacceptableCredential("Username must not be empty")
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise UnacceptableCredential(f"a user name has at most {NAME_CHARS_MAX} characters, all of them printable")
