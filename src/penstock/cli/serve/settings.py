"""Settings of `penstock serve`: command-line options and penstock.toml, parsed and validated."""

import json
import tomllib
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.broker.kafka_settings import understand
from penstock.cli.serve.listeners import check_listener_names, read_listeners
from penstock.cluster.settings import LISTENERS
from penstock.node import Address, NodeSettings

PROCESSES_MAX: Final = 64
NODE_ID_MAX: Final = 2**31 - 1
BROKER: Final = "broker"
STRICT: Final = "strict_config"


class Key(NamedTuple):
    """A penstock.toml key or option: the parser of its value, and a description of valid values for errors."""

    read: Callable[[Any], Any]
    """Function that returns the parsed value, or raises ValueError if the value is invalid."""
    expected: str


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _path(value: Any) -> Path:
    return value if isinstance(value, Path) else Path(_text(value))


def _address(value: Any) -> Address:
    return Address.parse(_text(value))


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return read


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < inf:
        raise ValueError
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


_ADDRESS: Final = Key(_address, 'HOST:PORT with a port from 0 to 65535, such as "127.0.0.1:9092"')
KEYS: Final = {
    "data_dir": Key(_path, 'the path of a folder, such as "/var/lib/penstock"'),
    "listen": _ADDRESS,
    "advertise": _ADDRESS,
    "http": _ADDRESS,
    "credentials": Key(_path, 'the path of a file, such as "/etc/penstock/keys.yaml"'),
    "node_id": Key(_whole(0, NODE_ID_MAX), f"a whole number from 0 to {NODE_ID_MAX}"),
    "store": Key(_text, 'a URL such as "etcd://host:2379/penstock", or "embedded"'),
    "store_config": Key(_path, 'the path of a file, such as "/etc/penstock/store.properties"'),
    "session_s": Key(_seconds, "a number of seconds above 0"),
    STRICT: Key(_flag, "true or false"),
    "processes": Key(_whole(1, PROCESSES_MAX), f"a whole number from 1 to {PROCESSES_MAX}"),
}


def read_values(file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the parsed values of the file and of `options`, which override the file. Raises ValueError.

    >>> read_values(None, {"listen": "0.0.0.0:9092"})["listen"].port
    9092
    """
    values = {} if file is None else _read_file(file)
    return values | {name: _read(name, value, f"--{name.replace('_', '-')} ") for name, value in options.items()}


def _read_file(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {file}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not a TOML file: it is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{file} is nested too deeply") from error
    unknown = sorted(found.keys() - KEYS.keys() - {BROKER})
    if unknown:
        known = ", ".join(sorted(KEYS))
        raise ValueError(f"{file}: unknown key {unknown[0]!r}; known are {known}, and the table [{BROKER}]")
    broker = _read_broker(found.pop(BROKER, {}), file)
    return {name: _read(name, value, f"{file}: {name} = ") for name, value in found.items()} | {BROKER: broker}


def _read(name: str, value: Any, where: str) -> Any:
    try:
        return KEYS[name].read(value)
    except ValueError:
        raise ValueError(f"{where}{_shown(value)} is not allowed; expected {KEYS[name].expected}") from None


def _read_broker(table: Any, file: Path) -> dict[str, str]:
    """Returns the broker settings in the [broker] table of the file, with their values as text."""
    if not isinstance(table, dict):
        raise ValueError(
            f"{file}: {BROKER} = {_shown(table)} is not allowed; expected a table, [{BROKER}], with a line for each "
            'setting, such as "log.retention.ms" = 86400000'
        )
    for name, value in table.items():
        if isinstance(value, dict):
            raise ValueError(
                f"{file}: [{BROKER}] has a table {name!r}, expected settings; a name with dots is written in quotes, "
                'such as "log.retention.ms" = 86400000'
            )
        if not isinstance(value, str | int | float):
            raise ValueError(
                f"{file}: [{BROKER}] {json.dumps(name)} = {_shown(value)} is not allowed; expected a string, a "
                "number, or true or false"
            )
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.items()}


def _shown(value: Any) -> str:
    """Formats a value for an error message, approximately as TOML writes it."""
    return json.dumps(value, default=str, ensure_ascii=False)


def read_settings(values: dict[str, Any], broker: dict[str, str]) -> tuple[NodeSettings, list[str]]:
    """Returns the node's settings, and warnings about ignored settings. `broker` (from --set) overrides the file.
    Raises InvalidConfig or ValueError, also for unknown settings (for those in the file: only if strict_config)."""
    in_file: dict[str, str] = values.get(BROKER, {})
    found = {name: value for name, value in values.items() if name not in (BROKER, STRICT, "processes")}
    of_file, of_options = understand(in_file, is_strict=values.get(STRICT, False)), understand(broker, is_strict=True)
    if LISTENERS in broker:  # overrides those in the file
        found = {name: value for name, value in found.items() if name not in ("listen", "advertise")}
    for name, value in _node_values(in_file | broker).items():
        found.setdefault(name, value)
    found |= read_listeners(found.pop("listen", None), found.pop("advertise", None), in_file | broker)
    of_listeners = of_file.listener_settings | of_options.listener_settings
    settings = NodeSettings(settings=of_file.settings | of_options.settings, listener_settings=of_listeners, **found)
    check_listener_names(settings.kafka, of_listeners)
    return settings, of_file.warnings + of_options.warnings


def _node_values(settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns values of `serve` options (data_dir, node_id) that are given as Kafka settings."""
    found: dict[str, Any] = {}
    for name in ("log.dir", "log.dirs"):  # the second one wins, as in Kafka
        if name in settings:
            folders = [part.strip() for part in settings[name].split(",") if part.strip()]
            if len(folders) != 1:
                raise ValueError(f"{name}={settings[name]} is not allowed; a broker has one data folder")
            found["data_dir"] = Path(folders[0])
    for name in ("broker.id", "node.id"):
        if settings.get(name, "-1").strip() != "-1":  # -1: Kafka generates an id
            found["node_id"] = _read("node_id", _number(settings[name]), f"{name}=")
    return found


def _number(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text


def read_processes(values: dict[str, Any]) -> int:
    count: int = values.get("processes", 1)
    return count
