"""The data source on each PySpark that it supports, and on each Python of this machine."""

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cache import cache_folder
from tests.brokers import BrokerProcess

ROOT = Path(__file__).parents[2]
SPARKS = ("4.1.4", "4.2.1", "4.3.0")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Those that the newest PySpark supports."""
INSTALL_S = 1800
JOB_S = 900


def interpreter(version: str) -> str:
    """Returns a Python of this version; skips the test if there is none."""
    there = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    found = str(there[-1]) if there else shutil.which(f"python{version}")
    if found is None:
        pytest.skip(f"Python {version} is not installed")
    return found


def requirements(spark: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    return [*(each for each in needed if not each.startswith("pyspark")), f"pyspark=={spark}"]


def environment(python: str, spark: str) -> Path:
    """Returns the Python of a virtual environment with all that the data source needs; it is kept."""
    folder = cache_folder("spark-versions") / f"{python}-{spark}"
    made = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter(python), "-m", "venv", str(folder)], check=True)
        pip = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        found = subprocess.run(
            [*pip, *requirements(spark)], capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
        if found.returncode:
            why = (found.stderr.strip().splitlines() or ["no reason"])[-1]
            pytest.skip(f"pip cannot install PySpark {spark} for Python {python}: {why}")
        done.touch()
    return made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    process.finish()


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S + JOB_S + 60)
@pytest.mark.parametrize(
    ("python", "spark"),
    [*((PYTHONS[0], each) for each in SPARKS), *((each, SPARKS[-1]) for each in PYTHONS[1:])],
)
def test_a_job_reads_and_writes_each_row_once(broker: BrokerProcess, tmp_path: Path, python: str, spark: str) -> None:
    interpreter(python)
    topic = f"topic-{python}-{spark}"
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    for name in (topic, f"{topic}-copy"):
        admin.create_topics([NewTopic(name, 2)])[name].result(60)
    command = [str(environment(python, spark)), str(Path(__file__).with_name("spark_job.py"))]
    own = {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    done = subprocess.run(
        [*command, broker.kafka, topic, str(tmp_path)],
        env=inherited | own,
        capture_output=True,
        text=True,
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["spark"], found["python"].rpartition(".")[0]) == (spark, python)
    assert found["values"] == list(range(201))
