"""Which function carries out which action. What is not here is no action of this API."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from penstock.sqs import actions
from penstock.sqs.call import Call, Outcome
from penstock.sqs.json_codec import TARGET_PREFIX

Run = Callable[[Call], Outcome]
A = TypeVar("A", bound=Run)


class Action(NamedTuple):
    name: str
    permission: str
    """What a key must be allowed to do: who may send may send batches, as AWS has it."""
    run: Run


ACTIONS: Final[dict[str, Action]] = {}
TARGETS: Final[dict[bytes, Action]] = {}
"""The same by the header that names them in JSON."""


def action(name: str) -> Callable[[A], A]:
    """Register what carries out an action."""

    def register(run: A) -> A:
        ACTIONS[name] = TARGETS[TARGET_PREFIX + name.encode()] = Action(name, name.removesuffix("Batch"), run)
        return run

    return register


def load_actions() -> None:
    """Import every file of actions, so that each registers its own."""
    for module in pkgutil.iter_modules(actions.__path__):
        importlib.import_module(f"{actions.__name__}.{module.name}")
