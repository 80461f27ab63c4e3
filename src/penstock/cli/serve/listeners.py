"""Listeners of `penstock serve`: --listener, --listen and --advertise, and Kafka's listener settings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.cluster.listeners import Listeners, parse_listeners
from penstock.cluster.settings import ADVERTISED_LISTENERS, LISTENERS
from penstock.foundation.address import Address
from penstock.network.servers import HTTP
from penstock.node import NodeSettings

_PLAIN: Final = "PLAINTEXT"


def listener_options(options: Sequence[str], given: Mapping[str, str], others: Iterable[str]) -> dict[str, str]:
    """Returns `--listener` options as Kafka's settings. Raises ValueError.

    `given`: settings of --set. `others`: names of other options that are given.

    >>> listener_options(["SSL://0.0.0.0:9093=queue.example.org:9093"], {}, [])["advertised.listeners"]
    'SSL://queue.example.org:9093'
    """
    taken = [f"--set {name}" for name in (LISTENERS, ADVERTISED_LISTENERS) if options and name in given]
    if options or LISTENERS in given:
        taken += [f"--{name}" for name in ("listen", "advertise") if name in others]
    if taken:
        first = "--listener" if options else f"--set {LISTENERS}"
        raise ValueError(f"{first} and {taken[0]} exclude each other; give all listeners with {first}")
    if not options:
        return {}
    bound, advertised = [], []
    for option in options:
        at, equals, address = option.partition("=")
        name, slashes, _ = at.partition("://")
        if not slashes or (equals and not address):
            raise ValueError(
                f"--listener {option} is not allowed; expected NAME://HOST:PORT or NAME://HOST:PORT=HOST:PORT, where "
                "the second address is the one that clients connect to"
            )
        bound.append(at)
        advertised.append(f"{name}://{address}" if equals else at)
    return {LISTENERS: ",".join(bound), ADVERTISED_LISTENERS: ",".join(advertised)}


def read_listeners(listen: Address | None, advertise: Address | None, settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of NodeSettings for the listeners. `listen` and `advertise` replace the address of the only
    listener in `settings`. Raises InvalidConfig, or ValueError if `settings` have other listeners."""
    given = dict(settings)
    if (listen or advertise) and LISTENERS in given and not parse_listeners(given).is_plain:
        option = "listen" if listen else "advertise"
        raise ValueError(
            f"{option} is for a single listener named {_PLAIN}, but listeners={given[LISTENERS]}; remove {option}, "
            f"and give all addresses in {LISTENERS} and {ADVERTISED_LISTENERS}"
        )
    if listen is not None or LISTENERS not in given:
        given[LISTENERS] = f"{_PLAIN}://{listen or NodeSettings().listen}"
    if advertise is not None:
        given[ADVERTISED_LISTENERS] = f"{_PLAIN}://{advertise}"
    found = parse_listeners(given)
    if not found.is_plain:
        return {"listeners": found}
    values: dict[str, Any] = {"listen": found.all[0].bind}
    if given.get(ADVERTISED_LISTENERS, "").strip():
        values["advertise"] = found.all[0].advertised
    return values


def check_listener_names(listeners: Listeners, settings: Iterable[str]) -> None:
    """Raises ValueError if a setting `listener.name.NAME.…` is for a listener that does not exist."""
    known = [each.name.lower() for each in listeners] + [HTTP.lower()]
    for name in settings:
        if not any(name.startswith(f"listener.name.{each}.") for each in known):
            raise ValueError(
                f"{name} is for a listener that does not exist; known names, in lower case, are {', '.join(known)}"
            )
