"""A test that ends its worker fails once, by its name, and all other tests are run."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = {
    "conftest.py": "from tests.conftest import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler",
    "test_a.py": "import os\ndef test_one(): pass\ndef test_ends(): os._exit(3)\ndef test_two(): pass",
    "test_b.py": "def test_one(): pass\ndef test_two(): pass",
    "test_c.py": "def test_one(): pass",
}
OPTIONS = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "1")


def test_a_test_that_ends_its_worker_is_not_run_again(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    command = [sys.executable, "-m", "pytest", "-q", *OPTIONS, "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_a.py::test_ends" in done.stdout
    assert "1 failed, 5 passed" in done.stdout, done.stdout
