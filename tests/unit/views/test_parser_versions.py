"""The releases of sqlglot that pyproject.toml allows: their trees differ, what is read from them does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("version", ["26.0.0", "27.0.0", "28.0.0", "29.0.0", "30.0.0"])
def test_another_release_of_the_parser_reads_the_same(version: str, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path, f"sqlglot=={version}"], check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", "import sqlglot; print(sqlglot.__version__)"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == version
    tests = [HERE / "test_parsing.py", HERE / "test_predicate.py"]
    assert all(each.exists() for each in tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
