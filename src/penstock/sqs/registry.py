"""The registry of SQS actions and the functions that run them."""

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
    """The permission a key needs: one for SendMessage includes SendMessageBatch, as on AWS."""
    run: Run


ACTIONS: Final[dict[str, Action]] = {}
TARGETS: Final[dict[bytes, Action]] = {}
"""The same actions by the JSON protocol's X-Amz-Target header."""


def action(name: str) -> Callable[[A], A]:
    """Registers the function that runs an action."""

    def register(run: A) -> A:
        ACTIONS[name] = TARGETS[TARGET_PREFIX + name.encode()] = Action(name, name.removesuffix("Batch"), run)
        return run

    return register


def load_actions() -> None:
    """Imports every file of actions, so that each registers itself."""
    for module in pkgutil.iter_modules(actions.__path__):
        importlib.import_module(f"{actions.__name__}.{module.name}")
