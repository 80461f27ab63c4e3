"""Java programs from Maven Central: their jars, and all that these need, in one folder."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.cache import NotRun, cache_folder

PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:2.8"
RESOLVE_S_MAX: Final = 600

POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artefact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


def exact_jars(name: str, version: str, artefacts: Mapping[str, tuple[str, str]]) -> Path:
    """A folder with these jars alone, without what they ask for. `artefacts`: group and version by name. `name` and
    `version`: of its place in bench/.cache."""
    cache = cache_folder(name)
    folder = cache / version
    if not folder.exists():
        if shutil.which("mvn") is None:
            raise NotRun(f"mvn is not installed: {name} comes through Maven")
        fresh = cache / f"{version}.new"
        fresh.mkdir(exist_ok=True)
        for artefact, (group, number) in artefacts.items():
            coordinates = f"-Dartifact={group}:{artefact}:{number}"
            _run_plugin(cache, "get", coordinates, "-Dtransitive=false")
            _run_plugin(cache, "copy", coordinates, f"-DoutputDirectory={fresh}")
        fresh.rename(folder)
    return folder


def _run_plugin(folder: Path, goal: str, *arguments: str) -> None:
    command = ["mvn", "-B", "-q", f"{PLUGIN}:{goal}", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RESOLVE_S_MAX, check=False)
    if done.returncode:
        raise NotRun(f"Maven cannot fetch {arguments[0]}: {(done.stdout + done.stderr)[-300:]}")


def jars_of(name: str, group: str, artefact: str, version: str) -> Path:
    """A folder of jars, from the local Maven cache or Maven Central. `name`: of its place in bench/.cache."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise NotRun(f"{program} is not installed: {artefact} runs on Java and comes through Maven")
    folder = cache_folder(name)
    jars = folder / version
    if not jars.exists():
        (folder / "pom.xml").write_text(POM.format(name=name, group=group, artefact=artefact, version=version))
        fresh = folder / f"{version}.new"
        goal = [f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        done = subprocess.run(
            ["mvn", "-B", "-q", "-f", str(folder / "pom.xml"), *goal],
            capture_output=True,
            text=True,
            timeout=RESOLVE_S_MAX,
            check=False,
        )
        if done.returncode:
            raise NotRun(f"Maven cannot resolve {artefact} {version}: {(done.stdout + done.stderr)[-300:]}")
        fresh.rename(jars)
    return jars
