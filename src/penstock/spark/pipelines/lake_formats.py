"""Opens a lake table, in a given format or in the format that the files in its folder show."""

from pathlib import Path

from penstock.spark.pipelines.lake import PRIVATE_FOLDER, Lake, LakeMissing


def open_lake(folder: Path, kind: str) -> Lake:
    """Returns the table in `folder`, with the format `kind` (one of FORMATS). The table need not exist yet."""
    if kind == "delta":
        from penstock.spark.pipelines.lake_delta import DeltaLake

        return DeltaLake(folder)
    from penstock.spark.pipelines.lake_parquet import ParquetLake

    return ParquetLake(folder)


def find_lake(folder: Path) -> Lake:
    """Returns the existing table in a folder, of any format. Raises LakeMissing if there is none."""
    if (folder / "_delta_log").is_dir():
        return open_lake(folder, "delta")
    if (folder / PRIVATE_FOLDER / "state.json").is_file():
        return open_lake(folder, "parquet")
    raise LakeMissing(f"there is no table in {folder}: it has neither _delta_log nor {PRIVATE_FOLDER}/state.json")
