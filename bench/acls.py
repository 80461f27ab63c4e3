"""`python -m bench.acls`: what permissions cost: microseconds for each topic of an allowed request, in this process.

Each figure is the smallest of several rounds: what else a machine does makes rounds longer, never shorter.
"""

import time
from collections.abc import Callable
from typing import Final

import click

from bench.measure import machine
from bench.report import AT_MOST, Bar, Table
from penstock.broker.call import Call
from penstock.foundation.acls import Acl, Operation, Pattern, PatternType, Permission, ResourceType
from penstock.security.authorizer import Acls, Authorizer
from penstock.wire.keys import ApiKey

PRINCIPAL, PEER = "User:orders", "/10.0.0.7:50123"
ACLS: Final = 100_000
TOPICS: Final = 100
ROUNDS: Final = 20
COST_MAX_US: Final = 1.0


def acls_of(count: int) -> Acls:
    """Permissions of so many users, for a topic each; ours has one for every topic that is asked for."""
    found: dict[Pattern, tuple[Acl, ...]] = {}
    for number in range(count):
        pattern = Pattern(ResourceType.TOPIC, PatternType.LITERAL, f"topic-{number}")
        user = PRINCIPAL if number < TOPICS else f"User:user-{number}"
        found[pattern] = (Acl(user, "*", Operation.WRITE, Permission.ALLOW),)
    return found


def smallest_us(work: Callable[[], object], count: int) -> float:
    """Returns the microseconds of one of the `count` things that `work` does."""
    found = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        work()
        found.append(time.perf_counter() - began_s)
    return min(found) / count * 1e6


def call_with(authorizer: Authorizer | None) -> Call:
    call = Call(ApiKey.PRODUCE, 12, 1, "bench", 0.0, 0, PEER, lambda call: None, principal=PRINCIPAL)
    call.authorizer = authorizer
    return call


@click.command()
def main() -> None:
    """Measure what permissions cost."""
    click.echo(f"{machine()}\n")
    names = [f"topic-{number}" for number in range(TOPICS)]

    def ask(call: Call) -> Callable[[], object]:
        return lambda: [call.allows(Operation.WRITE, ResourceType.TOPIC, name) for name in names]

    acls = acls_of(ACLS)
    authorizer = Authorizer(lambda: acls)
    without = smallest_us(ask(call_with(None)), TOPICS)
    cached = smallest_us(ask(call_with(authorizer)), TOPICS)

    def change() -> object:
        nonlocal acls
        acls = changed.pop()
        return authorizer.allows(PRINCIPAL, "/10.0.0.7", Operation.WRITE, ResourceType.TOPIC, "topic-0")

    def change_and_ask_for_any() -> object:
        change()
        return authorizer.allows_any(PRINCIPAL, "/10.0.0.7", Operation.READ, ResourceType.TOPIC)

    table = Table(slug="acls", title="What permissions cost", columns=["a topic of a request", "µs", "bar"])
    bar = Bar(sign=AT_MOST, value=COST_MAX_US, unit=" µs more")
    table.rows.append(["without an authorizer", f"{without:.2f}", ""])
    table.rows.append(["allowed, as before", f"{cached:.2f}", table.verdict("a decision", cached - without, bar)])
    changed = [dict(acls) for _ in range(2 * ROUNDS)]
    first, first_of_any = smallest_us(change, 1), smallest_us(change_and_ask_for_any, 1)
    table.rows.append([f"the first one after a change of {ACLS:,} ACLs", f"{first:,.0f}", ""])
    table.rows.append(["the same, for any topic", f"{first_of_any:,.0f}", ""])
    click.echo(table.markdown())


if __name__ == "__main__":
    main()
