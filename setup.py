"""The one compiled extension. It is optional: without a compiler the pure twin serves."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "penstock.records._columns",
            ["src/penstock/records/_columns.pyx"],
            depends=[
                "src/penstock/records/_columns_write.pxi",
                "src/penstock/records/_columns_rows.pxi",
                "src/penstock/records/_columns_keys.pxi",
                "src/penstock/records/_columns_filter.pxi",
                "src/penstock/records/_columns_delays.pxi",
                "src/penstock/records/_columns_schemas.pxi",
            ],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
