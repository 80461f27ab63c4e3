import ast
import doctest
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in (SOURCE / "api").rglob("*.py")
    if path.stem != "__init__"
)
EXAMPLE = re.compile(r">>>|\b(mq|tx|penstock|message|loop|job)\.|class \w+:|except penstock|for message")


def public_methods(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name in _own(kind)]


def _own(kind: type) -> set[str]:
    return {name for each in kind.__mro__ if each.__module__.startswith("penstock.api") for name in vars(each)}


def test_importing_the_package_does_not_import_the_client_library() -> None:
    """Brokers and commands import `penstock` too."""
    code = "import penstock, sys; sys.exit(any(name.startswith('confluent_kafka') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_is_there_when_it_is_asked_for(name: str) -> None:
    assert getattr(penstock, name).__name__ == name
    assert name in dir(penstock)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'publish'"):
        penstock.publish  # noqa: B018


def test_the_stub_has_the_names_of_the_package_and_their_homes() -> None:
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    documented = {
        alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert documented == penstock._HOMES


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_is_documented_with_an_example(name: str) -> None:
    value = getattr(penstock, name)
    doc = inspect.getdoc(value) or ""
    if name != "PenstockError":  # which is never raised itself
        assert EXAMPLE.search(doc), doc
    if inspect.isclass(value) and not issubclass(value, BaseException) and not hasattr(value, "__members__"):
        for method in public_methods(value):
            found = inspect.getattr_static(value, method)
            if callable(found) or isinstance(found, property):
                text = inspect.getdoc(getattr(value, method)) or ""
                assert text, f"{name}.{method} has no docstring"
                if method not in ("close", "seen", "mark"):  # what else could one do with them
                    assert EXAMPLE.search(text), f"{name}.{method} has no example"


def examples() -> list[tuple[str, str]]:
    """Every paragraph of the public docstrings that is code, and the name that it is an example of."""
    found = []
    for name in penstock.__all__:
        value = getattr(penstock, name)
        members = [getattr(value, method) for method in public_methods(value)] if inspect.isclass(value) else []
        for each in (value, *members):
            doc = inspect.getdoc(each) if callable(each) or isinstance(each, property) else None
            found += [(name, text) for text in re.split(r"\n\s*\n", doc or "") if _parsed(text)]
    return found


def _parsed(text: str) -> ast.Module | None:
    for whole in (text, f"try:\n    pass\n{text}"):  # an except clause alone is an example too
        try:
            return ast.parse(whole)
        except SyntaxError:
            continue
    return None


@pytest.mark.parametrize(("name", "text"), examples())
def test_an_example_calls_what_there_is_with_what_it_takes(name: str, text: str) -> None:
    tree = _parsed(text)
    assert tree is not None
    of = "Async" if "Async" in name or "await" in text or "async" in text else ""
    owners = {
        "mq": getattr(penstock, f"{of}Connection"),
        "tx": getattr(penstock, f"{of}Transaction"),
        "loop": getattr(penstock, f"{of}ExactlyOnce"),
        "messages": getattr(penstock, f"{of}Subscription"),
        "message": penstock.Message,
        "jobs": getattr(penstock, f"{of}Work"),
        "job": getattr(penstock, f"{of}Job"),
        "penstock": penstock,
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            owner = owners.get(node.func.value.id)
            if owner is None:
                continue
            called = getattr(owner, node.func.attr)
            bound = [] if owner is penstock else [owner]
            if not inspect.isclass(called) or not issubclass(called, BaseException):
                inspect.signature(called).bind(*bound, *node.args, **{each.arg or "": each for each in node.keywords})


def test_there_are_examples_to_look_at() -> None:
    assert len({text for _, text in examples()}) > 50


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_that_can_be_run_are_right(module: str) -> None:
    result = doctest.testmod(import_module(module))
    assert result.failed == 0
