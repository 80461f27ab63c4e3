"""Rules for all source files: what a package may import, how long a file may be, and the language of all text."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"

PURE_PACKAGES = ("wire", "records", "groups", "transactions", "queues", "delays", "views", "schemas")
"""Packages without I/O, clocks, randomness or tasks."""
PURE_FILES = (
    "api/core/durations.py",
    "api/core/encoding.py",
    "api/core/queue_wire.py",
    "api/core/settings.py",
    "broker/client_limits.py",
    "broker/configs.py",
    "broker/fetch/sessions.py",
    "broker/internal_state.py",
    "broker/settings.py",
    "broker/share/delivery_terms.py",
    "broker/share/sessions.py",
    "client/queue_attributes.py",
    "client/signing.py",
    "cluster/acl_changes.py",
    "cluster/acls.py",
    "cluster/client_quotas.py",
    "cluster/controller.py",
    "cluster/elections.py",
    "cluster/image.py",
    "cluster/image_builder.py",
    "cluster/image_parts.py",
    "cluster/internal_topics.py",
    "cluster/keys.py",
    "cluster/listeners.py",
    "cluster/matching_topics.py",
    "cluster/partition_state.py",
    "cluster/placement.py",
    "cluster/queue_changes.py",
    "cluster/queues.py",
    "cluster/quota_changes.py",
    "cluster/quota_entities.py",
    "cluster/reassignment.py",
    "cluster/rebalance_plans.py",
    "cluster/registration.py",
    "cluster/settings.py",
    "cluster/survey.py",
    "cluster/topic_changes.py",
    "cluster/user_changes.py",
    "cluster/users.py",
    "cluster/view_changes.py",
    "cluster/views.py",
    "coordination/zookeeper_nodes.py",
    "foundation/acls.py",
    "foundation/address.py",
    "foundation/authorizer_settings.py",
    "foundation/codes.py",
    "foundation/delays.py",
    "foundation/durations.py",
    "foundation/errors.py",
    "foundation/http.py",
    "foundation/ids.py",
    "foundation/jaas.py",
    "foundation/percent.py",
    "foundation/sasl_settings.py",
    "foundation/scram.py",
    "foundation/settings.py",
    "foundation/spark_ids.py",
    "foundation/steps.py",
    "foundation/timers.py",
    "foundation/tls_settings.py",
    "foundation/view_names.py",
    "log/admission.py",
    "log/epochs.py",
    "log/offset_map.py",
    "log/producer_state.py",
    "log/producers.py",
    "log/settings.py",
    "log/transactions.py",
    "replication/isr_changes.py",
    "replication/leadership.py",
    "replication/pending_partitions.py",
    "replication/throttle.py",
    "security/authorizer.py",
    "security/certificate_principal.py",
    "security/credentials.py",
    "security/errors.py",
    "security/policies.py",
    "security/sigv4.py",
    "sqs/permissions.py",
    "telemetry/client_metrics.py",
    "telemetry/otlp.py",
    "telemetry/subscriptions.py",
)
"""Pure files of packages that also do I/O."""
BANNED = {"time", "random", "secrets", "asyncio", "socket", "os", "pathlib", "threading", "concurrent", "subprocess"}
DISK_ONLY = {"os", "mmap", "shutil"}
"""In the log, only disk.py may touch the operating system: everything else goes through the port."""
BANNED_PHRASES = (
    r"(?:who|what|whom)ever\b",
    r"(?:some|any)(?:body|one)\b",
    r"nobody\b",
    r"(?:give|gives|gave|given|giving) back\b",
    r"hand(?:s|ed|ing)? over\b",
    r"in hand\b",
    r"is there no more\b",
    r"put to work\b",
    r"be content\b",
    r"in good order\b",
    r"says? so\b",
    r"no longer there\b",
    r"upkeep\b",
    r"wish(?:es)?\b",
    r"parcels?\b",
    r"colleagues?\b",
    r"(?:this|a|the|every|other|between|each) rooms?\b",
    r"dice\b",
)
"""Our former private words. Use the terms of Kafka and SQS: client, release, deliver, in flight, maintenance."""
QUOTED = frozenset[str]()
"""Files that quote other projects' texts with such words."""
FIRST_LINE_MAX = 118
FILE_LINES_MAX = 420
FUNCTION_LINES_MAX = 62


def _python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _pure_files() -> list[Path]:
    packages = [path for name in PURE_PACKAGES for path in sorted((SOURCE / name).rglob("*.py"))]
    return packages + [SOURCE / name for name in PURE_FILES]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0]


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


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


def test_files_that_are_called_pure_are_checked_to_be() -> None:
    checked = set(_pure_files())
    called = [path for path in _python_files() if re.search(r"\bPure(?:[.:;]|$)", _docstring(path))]
    assert [_name(path) for path in called if path not in checked] == []


def test_the_first_line_of_every_module_docstring_is_one_plain_sentence() -> None:
    """Each is shown in docs/file-map.md, without the code."""
    offenders = []
    for path in _python_files():
        first, _, rest = _docstring(path).partition("\n")
        is_sentence = (
            re.match(r"[A-Za-z`]", first) and first.rstrip().endswith(".") and not rest.split("\n")[0].strip()
        )
        if not is_sentence or len(first) > FIRST_LINE_MAX:
            offenders.append(_name(path))
    assert offenders == []


def test_no_text_has_a_banned_phrase() -> None:
    banned = re.compile(r"\b(?:" + "|".join(BANNED_PHRASES) + ")", re.IGNORECASE)
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    tests = [
        path for name in ("tests", "bench") for path in sorted((ROOT / name).rglob("*.py")) if path != Path(__file__)
    ]
    offenders = [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for path in (*_python_files(), *pages, *tests)
        if _name(path) not in QUOTED
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := banned.search(line.replace("_", " ") if "def test_" in line else line))
    ]
    assert offenders == []


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
