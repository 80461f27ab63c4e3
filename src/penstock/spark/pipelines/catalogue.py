"""The list of ready-made pipelines, and the loader of a pipeline from its file or its name."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock.foundation.errors import InvalidConfig
from penstock.spark.errors import SparkMissing
from penstock.spark.pipelines.clusters import find_problems
from penstock.spark.pipelines.document import (
    Location,
    PipelineInvalid,
    Problem,
    Scalar,
    Table,
    read_file,
    suggest,
    with_option,
)
from penstock.spark.pipelines.options import read
from penstock.spark.pipelines.pipeline import CommonOptions, Pipeline

NAMES: Final = ("sql", "archive", "replay", "audit", "insights", "mirror", "redrive")
_KIND: Final = "pipeline"
"""The key in a pipeline file whose value is the name of the ready-made pipeline to run."""


class NoSuchPipeline(InvalidConfig):
    """The text that should name a pipeline is neither a file nor the name of a ready-made pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPipeline:
    """A pipeline with its options, ready to run."""

    pipeline: Pipeline[Any]
    options: CommonOptions
    base: Path
    """The folder against which relative paths in the options are resolved: the current directory."""


def find(name: str) -> Pipeline[Any]:
    """Returns the ready-made pipeline of this name. Imports only the module of that pipeline, and not Spark."""
    if name not in NAMES:
        raise NoSuchPipeline(f"there is no pipeline {name!r}; {suggest(name, NAMES)}, or a file ending in .yaml")
    try:
        found: Pipeline[Any] = importlib.import_module(f"penstock.spark.pipelines.{name}").PIPELINE
    except ModuleNotFoundError as error:
        raise SparkMissing(f"{error.name} is not installed: pip install 'penstock[spark]'") from error
    return found


def is_file(target: str) -> bool:
    return target.endswith((".yaml", ".yml")) or "/" in target


def load(target: str, settings: Sequence[tuple[str, str]] = (), bootstrap: str | None = None) -> LoadedPipeline:
    """Loads a pipeline from a file or by name; `settings` are options that override the file's. `bootstrap` is
    used if the file names no brokers. Raises PipelineInvalid with all problems of the options."""
    if is_file(target):
        table = read_file(Path(target))
        name = Path(target).stem
    else:
        find(target)
        table = Table(Location(f"pipeline {target}"), {_KIND: Scalar(Location(target), target, "str")}, {})
        name = target
    for path, text in settings:
        table = with_option(table, path, text)
    pipeline = _kind(table)
    if bootstrap is not None and "bootstrap" not in table.entries:
        table = with_option(table, "bootstrap", bootstrap)
    options: CommonOptions = read(pipeline.options, table, (_KIND,))
    options = options if options.name else replace(options, name=name)
    problems = list(pipeline.check(options))
    if problems:
        raise PipelineInvalid(problems)
    return LoadedPipeline(pipeline=pipeline, options=options, base=Path.cwd())


def _kind(table: Table) -> Pipeline[Any]:
    value = table.entries.get(_KIND)
    if value is None:
        return find("sql")
    if not isinstance(value, Scalar) or value.text not in NAMES:
        said = value.text if isinstance(value, Scalar) else "a list"
        raise PipelineInvalid([Problem(value.location, f"pipeline: {said!r} is not known; {suggest(said, NAMES)}")])
    return find(value.text)


def check_statements(loaded: LoadedPipeline) -> list[Problem]:
    """Checks a pipeline's SQL, as far as possible without Spark. Returns warnings; errors raise PipelineInvalid."""
    problems = list(loaded.pipeline.examine(loaded.options))
    certain = [problem for problem in problems if problem.is_certain]
    if certain:
        raise PipelineInvalid(certain)
    return problems


def check_clusters(loaded: LoadedPipeline) -> None:
    """Raises PipelineInvalid if brokers do not answer, or if topics or groups that the pipeline needs are missing."""
    problems = find_problems(loaded.pipeline.needs(loaded.options))
    if problems:
        raise PipelineInvalid(problems)
