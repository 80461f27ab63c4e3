"""The files of deploy/, read as Docker Compose and Kubernetes do."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.broker.settings import BROKER_SETTINGS
from penstock.cli.serve.commands import serve
from penstock.cli.serve.settings import read_settings, read_values
from penstock.coordination.stores import Address, parse
from penstock.node import NodeSettings

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
KUBERNETES = DEPLOY / "kubernetes"


def resources() -> list[dict[str, Any]]:
    """The Kubernetes manifests."""
    files = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    return [found for file in files for found in yaml.safe_load_all((KUBERNETES / file).read_text())]


def resource(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in resources() if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes replaces it. A name that is not there is a mistake here."""
    return re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], text)


def settings_of(arguments: list[str]) -> NodeSettings:
    """How a broker that is started with these would run: parsed by the command itself."""
    assert arguments[0] == "serve"
    parameters = serve.make_context("serve", list(arguments[1:])).params
    pairs = dict(parameters.pop("pairs"))
    assert not parameters.pop("listeners"), "the manifests have one listener"
    options = {name: value for name, value in parameters.items() if value is not None}
    for name in ("log_level", "config"):
        options.pop(name, None)
    settings, warnings = read_settings(read_values(None, options), pairs)
    assert warnings == []
    BROKER_SETTINGS.parse(settings.settings)
    return settings


def store_of(settings: NodeSettings) -> Address:
    return parse(settings.store)


def servers_of(config: str) -> Iterator[str]:
    """The brokers that a load balancer knows."""
    yield from re.findall(r"^\s*server\s+(?:[\w-]+\s+)?([\w.-]+:\d+)", config, re.MULTILINE)
