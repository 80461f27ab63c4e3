"""The ready pipelines, and how a file or a name becomes one that can be run."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.spark.pipelines.clusters import find_problems
from penstock.spark.pipelines.document import (
    PipelineInvalid,
    Place,
    Problem,
    Scalar,
    Table,
    possible,
    read_file,
    with_option,
)
from penstock.spark.pipelines.options import read
from penstock.spark.pipelines.pipeline import Common, Pipeline
from penstock.spark.session import SparkMissing

NAMES: Final = ("sql", "archive", "replay", "audit", "insights", "mirror", "redrive")
_KIND: Final = "pipeline"
"""The key of a file that says which of them it is."""


class NoSuchPipeline(InvalidConfig):
    """Neither a file nor the name of a ready pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A pipeline with its options, ready to be run."""

    pipeline: Pipeline[Any]
    options: Common
    base: Path
    """The folder that relative paths begin in: where the command runs."""


def find(name: str) -> Pipeline[Any]:
    """The ready pipeline of a name. Only its own module is imported, and no Spark."""
    if name not in NAMES:
        raise NoSuchPipeline(f"there is no pipeline {name!r}; {possible(name, NAMES)}, or a file that ends in .yaml")
    try:
        found: Pipeline[Any] = importlib.import_module(f"penstock.spark.pipelines.{name}").PIPELINE
    except ModuleNotFoundError as error:
        raise SparkMissing(f"{error.name} is not installed: pip install 'penstock[spark]'") from error
    return found


def is_file(target: str) -> bool:
    return target.endswith((".yaml", ".yml")) or "/" in target


def load(target: str, settings: Sequence[tuple[str, str]] = (), bootstrap: str | None = None) -> Loaded:
    """A file or a name, with what was set from outside. PipelineInvalid has everything that is wrong with it.

    `bootstrap` is used where the file says nothing about brokers.
    """
    if is_file(target):
        table = read_file(Path(target))
        name = Path(target).stem
    else:
        find(target)
        table = Table(Place(f"pipeline {target}"), {_KIND: Scalar(Place(target), target, "str")}, {})
        name = target
    for path, text in settings:
        table = with_option(table, path, text)
    pipeline = _kind(table)
    if bootstrap is not None and "bootstrap" not in table.entries:
        table = with_option(table, "bootstrap", bootstrap)
    options: Common = read(pipeline.options, table, (_KIND,))
    options = options if options.name else replace(options, name=name)
    problems = list(pipeline.check(options))
    if problems:
        raise PipelineInvalid(problems)
    return Loaded(pipeline=pipeline, options=options, base=Path.cwd())


def _kind(table: Table) -> Pipeline[Any]:
    value = table.entries.get(_KIND)
    if value is None:
        return find("sql")
    if not isinstance(value, Scalar) or value.text not in NAMES:
        said = value.text if isinstance(value, Scalar) else "a list"
        raise PipelineInvalid([Problem(value.place, f"pipeline: {said!r} is not known; {possible(said, NAMES)}")])
    return find(value.text)


def check_statements(loaded: Loaded) -> list[Problem]:
    """Find what Spark would find wrong, as far as that can be known without it; what is doubtful. Raises
    PipelineInvalid."""
    problems = list(loaded.pipeline.examine(loaded.options))
    certain = [problem for problem in problems if problem.is_certain]
    if certain:
        raise PipelineInvalid(certain)
    return problems


def check_clusters(loaded: Loaded) -> None:
    """See that brokers answer and topics are there, as far as the pipeline needs them."""
    problems = find_problems(loaded.pipeline.needs(loaded.options))
    if problems:
        raise PipelineInvalid(problems)
