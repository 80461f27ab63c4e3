"""The compiled extensions. They are optional: without a compiler their pure Python twins serve."""

from pathlib import Path

from setuptools import Extension, setup


def extension(name: str) -> Extension:
    """Returns the extension that is built from the .pyx file of that name and the .pxi files beside it."""
    source = Path("src", *name.split(".")).with_suffix(".pyx")
    return Extension(
        name,
        [str(source)],
        depends=[str(path) for path in sorted(source.parent.glob("*.pxi"))],
        extra_compile_args=["-O3"],
        optional=True,
    )


setup(
    ext_modules=[extension("penstock.records._columns"), extension("penstock.schemas.columns._kernel")],
    options={"build_ext": {"parallel": True}},
)
