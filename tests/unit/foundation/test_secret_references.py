"""References to secrets in the values of settings."""

from pathlib import Path

import pytest

from penstock.foundation.errors import InvalidConfig
from penstock.foundation.secret_references import resolve, resolve_all


def test_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", "wonder$land")
    properties, folder = tmp_path / "secrets.properties", tmp_path / "mounted"
    properties.write_text("orders.password=a\\nb\nempty=\n")
    folder.mkdir()
    (folder / "password").write_text("from kubernetes\n")
    given = {
        "plain": "a$b{c}",
        "env": "${env:ORDERS_PASSWORD}",
        "within": 'user="orders" password="${env:ORDERS_PASSWORD}";',
        "property": f"${{file:{properties}:orders.password}}",
        "empty": f"${{file:{properties}:empty}}",
        "file": f"${{file:{folder / 'password'}}}",
        "dir": f"${{dir:{folder}:password}}",
        "unknown": "${vault:orders:password}",
    }
    assert resolve_all(given) == {
        "plain": "a$b{c}",
        "env": "wonder$land",
        "within": 'user="orders" password="wonder$land";',
        "property": "a\nb",
        "empty": "",
        "file": "from kubernetes",
        "dir": "from kubernetes",
        "unknown": "${vault:orders:password}",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:MISSING_VARIABLE}", "refers to the environment variable MISSING_VARIABLE, which is not set"),
        ("${env:A:B}", "has a reference that is not valid; expected ${env:NAME}"),
        ("${file:/missing/file}", "refers to /missing/file: no such file or directory"),
        ("${file:/missing/file:name}", "cannot read /missing/file: no such file or directory"),
        ("${dir:/tmp}", "has a reference that is not valid"),
        ("${dir:/tmp:../etc/passwd}", "has a reference that is not valid"),
    ],
)
def test_bad_references(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        resolve("sasl.password", text)
    assert said in str(raised.value)
    assert str(raised.value).startswith(("sasl.password ", "cannot read"))


def test_a_missing_property(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("a=1\n")
    with pytest.raises(InvalidConfig, match="which has no such property"):
        resolve("sasl.password", f"${{file:{file}:b}}")


def test_a_replaced_text_is_not_replaced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "${env:INNER}")
    monkeypatch.setenv("INNER", "x")
    assert resolve("sasl.password", "${env:OUTER}") == "${env:INNER}"
