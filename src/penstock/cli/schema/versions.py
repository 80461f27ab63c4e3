"""Versions of subjects on the command line: `3` or `latest`."""

from collections.abc import Callable
from typing import Final

import click

from penstock.cli.common import Command, value_parser
from penstock.client.schema_registry_models import LATEST

_VERSION_MAX: Final = 2**31 - 1


def parse_version(text: str) -> int:
    """Returns a version; LATEST for `latest`. Raises ValueError.

    >>> parse_version("3"), parse_version("latest")
    (3, -1)
    """
    if text.lower() == "latest":
        return LATEST
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= _VERSION_MAX:
        return int(text)
    raise ValueError(f"{text!r} is not a version; give a number from 1, or latest")


def version_option(help: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds the option --version; the command receives a number, LATEST or None."""
    return click.option("--version", metavar="N|latest", callback=value_parser(parse_version), help=help)
