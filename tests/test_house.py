"""The house rules, as tests: what a room may import, and how long a file or a function may grow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"

PURE_ROOMS = ("wire", "records", "groups", "transactions", "queues", "delays", "views")
"""Whole rooms without IO, clocks, dice or tasks."""
PURE_FILES = (
    "foundation/address.py",
    "foundation/codes.py",
    "foundation/delays.py",
    "foundation/durations.py",
    "foundation/errors.py",
    "foundation/http.py",
    "foundation/ids.py",
    "foundation/percent.py",
    "foundation/settings.py",
    "foundation/spark_ids.py",
    "foundation/steps.py",
    "foundation/view_names.py",
    "log/producer_state.py",
    "log/producers.py",
    "log/transactions.py",
    "log/epochs.py",
    "log/settings.py",
    "log/admission.py",
    "log/keytable.py",
    "client/queue_attributes.py",
    "client/signing.py",
    "cluster/rebalance_plans.py",
    "cluster/controller.py",
    "cluster/elections.py",
    "cluster/image_builder.py",
    "cluster/image.py",
    "cluster/image_parts.py",
    "cluster/internal_topics.py",
    "cluster/keys.py",
    "cluster/partition_state.py",
    "cluster/placement.py",
    "cluster/queue_changes.py",
    "cluster/queues.py",
    "cluster/reassignment.py",
    "cluster/registration.py",
    "cluster/settings.py",
    "cluster/survey.py",
    "cluster/topic_changes.py",
    "cluster/views.py",
    "replication/throttle.py",
    "security/credentials.py",
    "security/errors.py",
    "security/policies.py",
    "security/sigv4.py",
    "broker/fetch_sessions.py",
    "broker/share/sessions.py",
    "broker/share/delivery_terms.py",
    "broker/configs.py",
    "broker/settings.py",
)
"""Pure files of rooms that also have shells."""
BANNED = {"time", "random", "secrets", "asyncio", "socket", "os", "pathlib", "threading", "concurrent", "subprocess"}
DISK_ONLY = {"os", "mmap", "shutil"}
"""In the log, only disk.py may touch the operating system: everything else goes through the port."""
FILE_LINES_MAX = 420
FUNCTION_LINES_MAX = 62


def _python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _pure_files() -> list[Path]:
    rooms = [path for room in PURE_ROOMS for path in sorted((SOURCE / room).rglob("*.py"))]
    return rooms + [SOURCE / name for name in PURE_FILES]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0]


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _offenders(paths: list[Path], banned: set[str]) -> dict[str, list[str]]:
    """Files that import what they may not, and what that is."""
    found = {_name(path): sorted(set(_imports(path)) & banned) for path in paths}
    return {name: imports for name, imports in found.items() if imports}


def test_pure_files_import_no_io_no_clock_and_no_randomness() -> None:
    assert _offenders(_pure_files(), BANNED) == {}


def test_in_the_log_only_the_disk_touches_the_operating_system() -> None:
    files = [path for path in sorted((SOURCE / "log").glob("*.py")) if path.name != "disk.py"]
    assert _offenders(files, DISK_ONLY | {"time", "random", "asyncio", "socket"}) == {}


def test_no_file_is_too_long() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in _python_files()}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{_name(path)}: {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in _python_files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX} == {}


def test_packages_hold_no_logic() -> None:
    allowed = {ast.Expr, ast.Assign, ast.Import, ast.ImportFrom}
    packages = [path for path in _python_files() if path.name == "__init__.py"]
    assert packages
    assert [
        _name(path) for path in packages if not {type(node) for node in ast.parse(path.read_text()).body} <= allowed
    ] == []


def test_every_handler_file_registers_the_api_it_is_named_after() -> None:
    from penstock.broker.registry import APIS, load_handlers

    load_handlers()
    named = {path.stem for path in (SOURCE / "broker" / "handlers").glob("*.py")} - {"__init__"}
    assert {api.key.name.lower() for api in APIS.values()} == named


def test_every_file_of_actions_registers_the_one_that_it_is_named_after() -> None:
    from penstock.sqs.registry import ACTIONS, load_actions

    load_actions()
    named = {path.stem.replace("_", "") for path in (SOURCE / "sqs" / "actions").glob("*.py")} - {"init"}
    assert {name.lower() for name in ACTIONS} == named


def test_the_layers_of_the_house_hold() -> None:
    tool = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_decision_has_context_choice_and_cost() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert pages
    for page in pages:
        text = page.read_text()
        assert all(part in text for part in ("## Context", "## Choice", "## Cost")), page.name
