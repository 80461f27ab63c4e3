"""The registry of SQS actions and the functions that run them."""

import importlib
import pkgutil
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeVar

from penstock.sqs import actions
from penstock.sqs.call import Call, Result
from penstock.sqs.json_codec import TARGET_PREFIX

Run = Callable[[Call], Coroutine[Any, Any, Result]]
A = TypeVar("A", bound=Run)


class Action(NamedTuple):
    name: str
    permission: str
    """Name of the permission that an access key needs. Batch actions need that of the single action, as on AWS."""
    run: Run
    is_eager: bool = False
    """Whether the action runs synchronously until it first waits; only then is an asyncio task created."""


ACTIONS: Final[dict[str, Action]] = {}
TARGETS: Final[dict[bytes, Action]] = {}
"""All actions, by their value of the X-Amz-Target header in the JSON protocol."""


def action(name: str, *, is_eager: bool = False) -> Callable[[A], A]:
    """Returns a decorator that registers an action. `is_eager`: it runs synchronously until it first waits."""

    def register(run: A) -> A:
        found = Action(name, name.removesuffix("Batch"), run, is_eager)
        ACTIONS[name] = TARGETS[TARGET_PREFIX + name.encode()] = found
        return run

    return register


def load_actions() -> None:
    """Imports all modules of the package `actions`, so that each action registers itself."""
    for module in pkgutil.iter_modules(actions.__path__):
        importlib.import_module(f"{actions.__name__}.{module.name}")
