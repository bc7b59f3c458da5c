"""`viewkit export DATASET`: a dataset's pairs in the formats that other people's tools read."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.export.atlas import write_atlas
from viewkit.pipelines.export.fiftyone import write_fiftyone
from viewkit.pipelines.export.files import new_file, new_folder
from viewkit.pipelines.export.huggingface import write_huggingface
from viewkit.pipelines.export.projection import AXES, FITTED_ON, Projection
from viewkit.pipelines.export.table import ImageRow, PairTable
from viewkit.pipelines.export.webshart import write_webshart
from viewkit.pipelines.export.writers import TABLES, import_arrow
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError

FORMATS = ("table", "embedding-atlas", "fiftyone", "huggingface", "webshart")
OPENED = {
    "table": "a row per pair, for any program",
    "embedding-atlas": "embedding-atlas {to} --x x --y y",
    "fiftyone": "fiftyone.Dataset.from_dir('{to}', dataset_type=fiftyone.types.FiftyOneDataset)",
    "huggingface": "datasets.load_dataset('{to}')",
    "webshart": "webshart.discover_dataset(source='{dataset}/images', metadata='{to}/images')",
}
"""How every format is opened."""


def export_pairs(
    dataset: Dataset | str | Path,
    to: str | Path,
    format: str | None = None,
    *,
    pairs: str = PAIRS,
    quality: str | None = None,
    genview: str | None = None,
    limit: int | None = None,
    x: str | None = None,
    y: str | None = None,
    side_px: int = 64,
) -> dict[str, Any]:
    """Write a dataset's stored pairs for other tools; docs/export.md says what each format holds.

    to: a file ending in .csv, .parquet or .jsonl, or the folder of a format that has several files.
    format: one of `FORMATS`; None: ``table``.
    pairs, quality, genview: columns; those of quality and of generated views are found where they are not given.
    limit: images at most, the first of the dataset, which lie there in random order.
    x, y, side_px: for ``embedding-atlas``: columns of numbers that place the pairs, or `AXES`, principal components of
        what the dataset's estimator makes of their views; and the side of a view's picture.

    Returns format, to, rows, pairs, quality, genview, and in ``open`` how it is opened. Raises `ConfigError` for what
    cannot be, `RefusedError` where something else lies at `to`, `DataError` for a damaged dataset.
    """
    dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    to, format = Path(to), format or "table"
    _check(to, format, limit, side_px, axes=x is not None or y is not None)
    facts: dict[str, Any] = {"format": format, "to": str(to)}
    facts["open"] = OPENED[format].format(to=to, dataset=dataset.path)
    if format == "webshart":
        with new_folder(to) as folder:
            return {**facts, "rows": write_webshart(folder, dataset)}
    table = PairTable(dataset, pairs, quality, genview)
    images: Iterable[ImageRow] = islice(table.images(), limit)
    if format in ("fiftyone", "huggingface"):
        with new_folder(to) as folder:
            rows = write_fiftyone(folder, images) if format == "fiftyone" else write_huggingface(folder, table, images)
    else:
        with new_file(to) as part:
            if format == "embedding-atlas":
                fitted = _projection(table, limit) if {x, y} & {*AXES} else None
                rows = write_atlas(part, table, images, x=x, y=y, side_px=side_px, projection=fitted)
            else:
                records = (record for image in images for record in image.records)
                rows = TABLES[to.suffix](part, table.kinds, records)
    return {**facts, "rows": rows, "pairs": pairs, "quality": table.quality, "genview": table.genview}


def _projection(table: PairTable, limit: int | None) -> Projection:
    """By the dataset's own estimator."""
    encoder = open_encoder("estimator", table.dataset)
    return Projection(encoder, islice(table.images(), min(limit or FITTED_ON, FITTED_ON)))


def _check(to: Path, format: str, limit: int | None, side_px: int, *, axes: bool) -> None:
    """`ConfigError` for what cannot be, before anything is read."""
    if format not in FORMATS:
        raise ConfigError(f"export: --format is '{format}'; choose one of {', '.join(FORMATS)}")
    endings = {"table": tuple(TABLES), "embedding-atlas": (".jsonl",)}.get(format)
    if endings is not None and to.suffix not in endings:
        raise ConfigError(
            f"export: --to is {to}; --format {format} writes a file ending in {' or '.join(endings)}"
            + (f" (folders are written by --format {', '.join(FORMATS[2:])})" if format == "table" else "")
        )
    if limit is not None and (limit < 1 or format == "webshart"):
        raise ConfigError(f"export: --limit is {limit}; give at least 1 image, and leave it out for webshart")
    if axes and format != "embedding-atlas":
        raise ConfigError(f"export: --x and --y are for --format embedding-atlas, not {format}")
    if not 8 <= side_px <= 512:
        raise ConfigError(f"export: --side-px is {side_px}; it must be 8 to 512")
    if to.suffix == ".parquet" or format == "huggingface":
        import_arrow()
