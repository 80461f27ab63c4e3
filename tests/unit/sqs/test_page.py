"""docs/sqs.md lists what is served: checked against actions, attributes, errors and botocore's model."""

import re
from pathlib import Path

from penstock.reference import sqs_errors
from penstock.sqs import attributes, errors, limits
from penstock.sqs.actions import create_queue
from penstock.sqs.received_message import BODY_ENCODING
from penstock.sqs.registry import ACTIONS, load_actions
from tests.sqs_clients import json_model

PAGE = (Path(__file__).parents[3] / "docs" / "sqs.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """The table below a heading: what follows the first column, by that."""
    text = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return {first: rest for first, *rest in found[2:]}


def test_every_action_of_botocores_model_is_carried_out_and_on_the_page() -> None:
    load_actions()
    assert set(rows("Actions")) == set(ACTIONS) == set(json_model()["operations"])


def test_every_attribute_of_a_queue_is_on_the_page() -> None:
    of_botocore = set(json_model()["shapes"]["QueueAttributeName"]["enum"]) - {attributes.ALL}
    assert of_botocore <= attributes.KNOWN
    assert set(rows("Attributes of queues")) == attributes.KNOWN | {create_queue.TOPIC}


def test_every_attribute_of_a_message_is_on_the_page() -> None:
    of_botocore = set(json_model()["shapes"]["MessageSystemAttributeName"]["enum"]) - {attributes.ALL}
    assert set(rows("Attributes of messages")) == of_botocore
    assert f"`{BODY_ENCODING}`" in PAGE


def test_it_is_said_of_every_error_when_it_is_answered() -> None:
    faults = {fault for fault in vars(errors).values() if isinstance(fault, errors.Fault)}
    assert {*faults, *errors.REFUSALS.values()} == set(sqs_errors.WHEN)


def test_every_error_of_botocores_model_is_on_the_page() -> None:
    shapes = json_model()["shapes"]
    ours = {fault.type.partition("#")[2] for fault in vars(errors).values() if isinstance(fault, errors.Fault)}
    codes = set(rows("Errors"))
    for name, shape in shapes.items():
        if shape.get("exception") and not name.startswith("Kms") and name != "InvalidIdFormat":
            assert name in ours or name in codes or f"AWS.SimpleQueueService.{name}" in codes, name


def test_the_numbers_on_the_page_are_those_that_are_checked() -> None:
    numbers = {int(text.replace(",", "")) for text in re.findall(r"\d[\d,]*", PAGE.partition("## Actions")[2])}
    named = {name: value for name, value in vars(limits).items() if name.isupper()}
    for name, value in named.items():
        wanted = value if isinstance(value, limits.Span) else (value,)
        assert set(wanted) <= numbers, name
