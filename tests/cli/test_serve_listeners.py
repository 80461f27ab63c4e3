"""Listeners on the command line and in penstock.toml: which one counts, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from penstock.cli.serve.listeners import listener_options
from penstock.cli.serve.processes import serve_command, settings_per_broker
from penstock.cli.serve.settings import read_settings, read_values
from penstock.foundation.security_protocol import SecurityProtocol

from .test_serve_refused import ADDRESSES, MISUSED, REFUSED, refused

TWO = {
    "listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://0.0.0.0:9192",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


def kafka(broker: dict[str, str], **options: str) -> Any:
    return read_settings(read_values(None, options), broker)[0].kafka


@pytest.mark.parametrize(
    ("options", "broker", "bound", "advertised"),
    [
        ({}, {}, "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"),
        ({"listen": "0.0.0.0:1"}, {}, "PLAINTEXT://0.0.0.0:1", "PLAINTEXT://0.0.0.0:1"),
        ({"listen": "0.0.0.0:1", "advertise": "h:2"}, {}, "PLAINTEXT://0.0.0.0:1", "PLAINTEXT://h:2"),
        ({}, {"listeners": "PLAINTEXT://:1"}, "PLAINTEXT://0.0.0.0:1", "PLAINTEXT://0.0.0.0:1"),
        ({}, {"advertised.listeners": "PLAINTEXT://h:1"}, "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://h:1"),
        ({"advertise": "h:1"}, {}, "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://h:1"),
        ({}, TWO, TWO["listeners"], TWO["listeners"]),
    ],
)
def test_listeners_come_from_options_and_settings(
    options: dict[str, str], broker: dict[str, str], bound: str, advertised: str
) -> None:
    found = kafka(broker, **options)
    assert (found.bind_text, found.advertised_text) == (bound, advertised)


def test_the_command_line_replaces_the_listeners_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('listen = "h:1"\nadvertise = "i:1"\n[broker]\n"advertised.listeners" = "PLAINTEXT://j:1"\n')
    options = listener_options(["PLAINTEXT://127.0.0.1:5"], {}, [])
    found = read_settings(read_values(file, {}), options)[0].kafka
    assert (found.bind_text, found.advertised_text) == ("PLAINTEXT://127.0.0.1:5", "PLAINTEXT://127.0.0.1:5")


def test_listener_options_may_have_another_address_for_clients() -> None:
    assert listener_options(["A://h:1=queue.example.org:2", "B://i:3"], {}, []) == {
        "listeners": "A://h:1,B://i:3",
        "advertised.listeners": "A://queue.example.org:2,B://i:3",
    }


@pytest.mark.parametrize(
    ("options", "given", "others", "said"),
    [
        (["A://h:1"], {}, ["listen"], "--listener and --listen exclude each other"),
        (["A://h:1"], {}, ["advertise"], "--listener and --advertise exclude each other"),
        (["A://h:1"], {"listeners": "A://h:1"}, [], "--listener and --set listeners exclude each other"),
        ([], {"listeners": "A://h:1"}, ["listen"], "--set listeners and --listen exclude each other"),
        (["h:1"], {}, [], "--listener h:1 is not allowed; expected NAME://HOST:PORT"),
        (["A://h:1="], {}, [], "--listener A://h:1= is not allowed; expected NAME://HOST:PORT"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    options: list[str], given: dict[str, str], others: list[str], said: str
) -> None:
    with pytest.raises(ValueError, match=r"exclude each other|is not allowed") as caught:
        listener_options(options, given, others)
    assert said in str(caught.value)


def test_one_listener_in_the_file_does_not_fit_to_several(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    lines = [f'"{name}" = "{value}"' for name, value in TWO.items()]
    file.write_text("\n".join(['listen = "h:1"', "[broker]", *lines, ""]))
    with pytest.raises(ValueError, match="listen is for a single listener named PLAINTEXT, but listeners=INTERNAL"):
        read_settings(read_values(file, {}), {})


def test_a_setting_for_a_listener_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="known names, in lower case, are internal, external, http"):
        kafka(TWO | {"listener.name.extrenal.ssl.key.password": "x"})
    kafka(TWO | {"listener.name.external.ssl.key.password": "x", "listener.name.http.ssl.client.auth": "none"})


def test_a_listener_with_sasl_needs_no_more_than_its_protocol() -> None:
    assert kafka({"listeners": "SASL_SSL://h:1"}).all[0].protocol is SecurityProtocol.SASL_SSL


def test_the_ports_of_several_processes_count_up_on_every_listener() -> None:
    settings, _ = read_settings(read_values(None, {"store": "etcd://h:2379"}), TWO)
    first, second = settings_per_broker(settings, 2)
    assert second.kafka.bind_text == "INTERNAL://127.0.0.1:9093,EXTERNAL://0.0.0.0:9193"
    command = serve_command(second, None, TWO, "info")
    assert f"listeners={second.kafka.bind_text}" in command
    assert f"advertised.listeners={second.kafka.advertised_text}" in command
    assert "--listen" not in command
    with pytest.raises(ValueError, match="collide at port 9192"):
        settings_per_broker(settings, 101)
    assert first.kafka == settings.kafka


def test_a_broker_that_cannot_use_its_certificate_names_the_reason(tmp_path: Path) -> None:
    options = ("--data-dir", str(tmp_path / "d"), "--listener", "SSL://127.0.0.1:0", "--http", "127.0.0.1:0")
    said = refused(*options, code=REFUSED)
    assert said.startswith("listener SSL has TLS, but no certificate; set ssl.keystore.location")
    said = refused(*options, "--set", f"ssl.keystore.location={tmp_path / 'x.pem'}", code=REFUSED)
    assert said == f"ssl.keystore.location: cannot read {tmp_path / 'x.pem'}: no such file or directory"


def test_listen_and_listener_exclude_each_other() -> None:
    said = refused(*ADDRESSES, "--listener", "A://h:1", code=MISUSED)
    assert said == "--listener and --listen exclude each other; give all listeners with --listener"
