"""Connections of a host: how many, and how fast."""

from typing import Any

from penstock.cluster.client_quotas import CONNECTION_RATE, Quotas
from penstock.foundation.quota_entities import entity
from penstock.network.host_limits import OVERRIDES, PER_HOST, HostLimits

ONE, OTHER = "10.0.0.1", "10.0.0.2"


def limits(quotas: Quotas | None = None, most: int = 1000, overrides: str = "") -> HostLimits:
    values: dict[str, Any] = {PER_HOST: most, OVERRIDES: overrides}
    return HostLimits(values.__getitem__, lambda: quotas or {})


def test_hosts_have_so_many_connections_each() -> None:
    hosts = limits(most=2, overrides=f"{OTHER}:1, fd00::1:0")
    assert [hosts.admit(ONE, 0) for _ in range(3)] == ["", "", "too_many_of_host"]
    assert [hosts.admit(f"::ffff:{OTHER}", 0) for _ in range(2)] == ["", "too_many_of_host"]
    assert hosts.admit("fd00::1", 0) == "too_many_of_host"
    hosts.leave(ONE)
    assert hosts.admit(ONE, 0) == ""


def test_hosts_that_have_left_are_forgotten() -> None:
    hosts = limits()
    for number in range(1000):
        assert hosts.admit(f"10.0.{number % 256}.{number // 256}", 0) == ""
        hosts.leave(f"10.0.{number % 256}.{number // 256}")
    assert len(hosts._counts) == 0


def test_hosts_open_so_many_connections_per_second() -> None:
    quotas = {entity(ip=None): {CONNECTION_RATE: 1.0}, entity(ip=OTHER): {CONNECTION_RATE: 2.0}}
    hosts = limits(quotas)
    assert sum(not hosts.admit(ONE, 1000.0) for _ in range(50)) == 10
    assert sum(not hosts.admit(OTHER, 1000.0) for _ in range(50)) == 20
    assert [hosts.admit(ONE, 1001.0) for _ in range(2)] == ["", "too_fast_of_host"]
