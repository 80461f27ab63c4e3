"""Rules for all source files: what a package may import, how long a file may be, and the language of all text."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"

PURE_PACKAGES = ("wire", "records", "groups", "transactions", "queues", "delays", "views", "schemas")
"""Packages without I/O, clocks, randomness or tasks."""
PURE_FILES = (
    "api/core/durations.py",
    "api/core/encoding.py",
    "api/core/queue_wire.py",
    "api/core/settings.py",
    "broker/audited_changes.py",
    "broker/client_limits.py",
    "broker/configs.py",
    "broker/fetch/sessions.py",
    "broker/internal_state.py",
    "broker/settings.py",
    "broker/share/delivery_terms.py",
    "broker/share/sessions.py",
    "client/queue_attributes.py",
    "client/signing.py",
    "cluster/access_key_changes.py",
    "cluster/access_keys.py",
    "cluster/acl_changes.py",
    "cluster/acls.py",
    "cluster/client_quotas.py",
    "cluster/controller.py",
    "cluster/delegation_tokens.py",
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
    "cluster/reassignment.py",
    "cluster/rebalance_plans.py",
    "cluster/registration.py",
    "cluster/settings.py",
    "cluster/survey.py",
    "cluster/token_changes.py",
    "cluster/topic_changes.py",
    "cluster/user_changes.py",
    "cluster/users.py",
    "cluster/view_changes.py",
    "cluster/views.py",
    "coordination/zookeeper_nodes.py",
    "foundation/access_key_settings.py",
    "foundation/acls.py",
    "foundation/address.py",
    "foundation/authorizer_settings.py",
    "foundation/codes.py",
    "foundation/delays.py",
    "foundation/delegation_settings.py",
    "foundation/durations.py",
    "foundation/errors.py",
    "foundation/http.py",
    "foundation/ids.py",
    "foundation/jaas.py",
    "foundation/kerberos_settings.py",
    "foundation/networks.py",
    "foundation/oauth_settings.py",
    "foundation/percent.py",
    "foundation/proxies.py",
    "foundation/quota_entities.py",
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
    "security/audit.py",
    "security/authorizer.py",
    "security/certificate_principal.py",
    "security/credentials.py",
    "security/errors.py",
    "security/kerberos_principal.py",
    "security/policies.py",
    "security/policy_conditions.py",
    "security/sigv4.py",
    "sqs/permissions.py",
    "sqs/policy_facts.py",
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


class Source(NamedTuple):
    """What the rules ask of a file. Without its syntax tree: the garbage collector would look at all of them."""

    docstring: str
    imports: tuple[str, ...]
    functions: dict[str, int]
    """Their lengths in lines; the longest of one name."""
    statements: frozenset[type]
    """Kinds of the statements at the top level."""


@cache
def _source(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: list[str] = []
    functions: dict[str, int] = {}
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            imports += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            imports.append(node.module.partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            functions[node.name] = max(length, functions.get(node.name, 0))
    kinds = frozenset(type(node) for node in tree.body)
    return Source(ast.get_docstring(tree) or "", tuple(imports), functions, kinds)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node, however deep. Imports and functions are nowhere else."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        held = getattr(node, name, ())
        for each in held if isinstance(held, list) else ():
            yield each
            yield from _statements(each)


def _python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _pure_files() -> list[Path]:
    packages = [path for name in PURE_PACKAGES for path in sorted((SOURCE / name).rglob("*.py"))]
    return packages + [SOURCE / name for name in PURE_FILES]


def _spaced(found: re.Match[str]) -> str:
    return found[0].replace("_", " ")


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT))


def _offenders(paths: list[Path], banned: set[str]) -> dict[str, list[str]]:
    """Files that import what they may not, and what that is."""
    found = {_name(path): sorted(set(_source(path).imports) & banned) for path in paths}
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
        f"{_name(path)}: {name}": length
        for path in _python_files()
        for name, length in _source(path).functions.items()
    }
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES_MAX} == {}


def test_files_that_are_called_pure_are_checked_to_be() -> None:
    checked = set(_pure_files())
    called = [path for path in _python_files() if re.search(r"\bPure(?:[.:;]|$)", _source(path).docstring)]
    assert [_name(path) for path in called if path not in checked] == []


def test_the_first_line_of_every_module_docstring_is_one_plain_sentence() -> None:
    """Each is shown in docs/file-map.md, without the code."""
    offenders = []
    for path in _python_files():
        first, _, rest = _source(path).docstring.partition("\n")
        is_sentence = (
            re.match(r"[A-Za-z`]", first) and first.rstrip().endswith(".") and not rest.split("\n")[0].strip()
        )
        if not is_sentence or len(first) > FIRST_LINE_MAX:
            offenders.append(_name(path))
    assert offenders == []


def test_no_text_has_a_banned_phrase() -> None:
    banned = re.compile(r"\b(?:" + "|".join(BANNED_PHRASES) + ")")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    tests = [
        path for name in ("tests", "bench") for path in sorted((ROOT / name).rglob("*.py")) if path != Path(__file__)
    ]
    offenders = [
        f"{path.relative_to(ROOT)}:{_line(text, found)}: {found[0]}"
        for path in (*_python_files(), *pages, *tests)
        if _name(path) not in QUOTED
        for text in [re.sub(r"def test_.*", _spaced, path.read_text(encoding="utf-8").lower())]
        for found in banned.finditer(text)
    ]
    assert offenders == []


def test_packages_hold_no_logic() -> None:
    allowed = {ast.Expr, ast.Assign, ast.Import, ast.ImportFrom}
    packages = [path for path in _python_files() if path.name == "__init__.py"]
    assert packages
    assert [_name(path) for path in packages if not _source(path).statements <= allowed] == []


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


def test_every_decision_has_context_choice_and_cost() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert pages
    for page in pages:
        text = page.read_text()
        assert all(part in text for part in ("## Context", "## Choice", "## Cost")), page.name
