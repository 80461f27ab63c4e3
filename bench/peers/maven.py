"""Java programs from Maven Central: their jars, and all that these need, in one folder."""

import shutil
import subprocess
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
