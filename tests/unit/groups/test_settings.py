"""The settings of groups."""

import pytest

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.settings import Table
from penstock.groups.settings import GROUP_SETTINGS, GroupSettings


def parsed(**values: str) -> GroupSettings:
    table = Table(GROUP_SETTINGS).parse({name.replace("_", "."): value for name, value in values.items()})
    return GroupSettings.of(table.__getitem__)


@pytest.mark.parametrize("text", ["", " ", ",", "uniform,fair"])
def test_a_group_needs_an_assignor_that_there_is(text: str) -> None:
    with pytest.raises(InvalidConfig, match="expected a list of at least 1 of uniform or range"):
        parsed(group_consumer_assignors=text)


def test_assignors_are_known_in_their_order() -> None:
    assert parsed(group_consumer_assignors=" range, uniform").consumer_assignors == ("range", "uniform")


@pytest.mark.parametrize(
    ("policy", "may_upgrade", "may_downgrade"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_policy_says_which_way_groups_may_move(policy: str, may_upgrade: bool, may_downgrade: bool) -> None:
    settings = parsed(group_consumer_migration_policy=policy)
    assert (settings.may_upgrade, settings.may_downgrade) == (may_upgrade, may_downgrade)
