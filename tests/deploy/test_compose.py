"""The compose file, the image and the load balancers: valid, and in agreement with each other and with the broker."""

import re
from typing import Any

import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema import Draft7Validator

from penstock.network.http_connection import BODY_BYTES_MAX, IDLE_S
from penstock.node import LEAVE_S, SHUTDOWN_S

from .manifests import DEPLOY, compose, servers_of, settings_of, store_of

BROKERS = ("broker-1", "broker-2", "broker-3")


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def test_the_compose_file_is_valid() -> None:
    errors = list(Draft7Validator(get_builtin_schema("vendor.compose-spec")).iter_errors(compose()))
    assert not errors, errors


def test_there_are_three_servers_three_brokers_and_one_front() -> None:
    assert sorted(compose()["services"]) == [*BROKERS, "etcd-1", "etcd-2", "etcd-3", "nginx"]


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_is_what_its_name_says(name: str) -> None:
    settings = settings_of(service(name)["command"])
    assert settings.node_id == int(name[-1])
    assert settings.advertise is not None
    assert (settings.advertise.host, settings.advertise.port) == (name, settings.listen.port)
    assert settings.listen.host == settings.http.host == "0.0.0.0"
    # From this machine and from other containers, a broker is reached by the same port: it tells only one.
    assert service(name)["ports"] == [f"127.0.0.1:{settings.listen.port}:{settings.listen.port}"]
    assert service(name)["volumes"] == [f"{name}:{settings.data_dir}"]
    assert settings.settings == {"default.replication.factor": "3", "min.insync.replicas": "2"}


def test_brokers_are_in_one_cluster_without_conflicting_ports() -> None:
    found = [settings_of(service(name)["command"]) for name in BROKERS]
    assert len({each.store for each in found}) == 1
    assert store_of(found[0]).servers == ("etcd-1:2379", "etcd-2:2379", "etcd-3:2379")
    assert len({each.listen.port for each in found}) == len({each.node_id for each in found}) == 3
    assert {volume.partition(":")[0] for each in compose()["services"].values() for volume in each["volumes"]} == {
        *compose()["volumes"],
        "./nginx.conf",
    }


def test_the_servers_of_etcd_know_each_other() -> None:
    names = ("etcd-1", "etcd-2", "etcd-3")
    for name in names:
        environment = service(name)["environment"]
        assert environment["ETCD_NAME"] == name
        assert environment["ETCD_ADVERTISE_CLIENT_URLS"] == f"http://{name}:2379"
        assert environment["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == f"http://{name}:2380"
        assert environment["ETCD_INITIAL_CLUSTER"] == ",".join(f"{each}=http://{each}:2380" for each in names)


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_a_broker_has_the_time_that_it_takes_to_leave() -> None:
    for name in BROKERS:
        assert _seconds(service(name)["stop_grace_period"]) >= 2 * (LEAVE_S + SHUTDOWN_S)


def test_health_is_asked_for_where_brokers_answer() -> None:
    port = settings_of(service("broker-1")["command"]).http.port
    for name in BROKERS:
        assert f"http://127.0.0.1:{port}/readyz" in service(name)["healthcheck"]["test"][-1]
    assert f"http://127.0.0.1:{port}/healthz" in (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize("file", ["nginx.conf", "haproxy.cfg"])
def test_load_balancers_know_all_brokers(file: str) -> None:
    expected = [f"{name}:{settings_of(service(name)['command']).http.port}" for name in BROKERS]
    assert list(servers_of((DEPLOY / file).read_text())) == expected


def test_nginx_listens_where_it_is_published_and_takes_what_brokers_take() -> None:
    config = (DEPLOY / "nginx.conf").read_text()
    (port,) = re.findall(r"^\s*listen (\d+);", config, re.MULTILINE)
    assert service("nginx")["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert service("nginx")["volumes"] == ["./nginx.conf:/etc/nginx/nginx.conf:ro"]
    (size_mib,) = re.findall(r"client_max_body_size (\d+)m;", config)
    assert int(size_mib) << 20 == BODY_BYTES_MAX
    (idle,) = re.findall(r"keepalive_timeout (\d+)s;", config)
    assert int(idle) < IDLE_S, "a connection must not be used that the broker is about to close"


def test_haproxy_checks_what_says_that_a_broker_takes_requests() -> None:
    config = (DEPLOY / "haproxy.cfg").read_text()
    assert "option httpchk GET /readyz" in config
    for name in ("client", "server", "http-keep-alive"):
        (seconds,) = re.findall(rf"timeout {name} (\d+)s", config)
        assert int(seconds) < IDLE_S


def test_the_image_starts_a_broker_that_keeps_its_data_on_the_volume() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    settings = settings_of(re.findall(r'"([^"]*)"', command))
    assert f"VOLUME {settings.data_dir}" in text
    assert f"EXPOSE {settings.listen.port} {settings.http.port}" in text
    for extra in ("zookeeper", "etcd"):
        assert extra in re.findall(r"\.\[([\w,]+)\]", text)[0].split(",")


def test_all_that_the_image_is_built_from_is_sent_to_the_builder() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line[1:] for line in lines if line.startswith("!")}
    assert sent == {"src", "pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE"}
    assert all((DEPLOY.parent / name).exists() for name in sent)
