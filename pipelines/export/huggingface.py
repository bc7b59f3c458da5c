"""A dataset for Hugging Face's `datasets`: parquet files with the images in them, loaded without any script."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from viewkit.pipelines.engine.batches import batches
from viewkit.pipelines.export.table import ImageRow, PairTable
from viewkit.pipelines.export.writers import import_arrow
from viewkit.pipelines.views.recipe import FIELDS
from viewkit.shards.codecs import image_field
from viewkit.shards.view_fields import views_of_fields

ROWS_PER_FILE, ROWS_PER_GROUP = 10_000, 100
"""`datasets` and the viewer of the hub read whole row groups, and an image takes 100 kB."""

CARD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---

# Images and their pairs

A row per image: `key`, `image`, `label`, `class_name`, `generated` (its generated view), and for its candidate pairs
`recipes` [rounds, views, {fields}], `scores` [rounds, pairs, {scores}] and `quality` [rounds, pairs].

- the pairs of views are (0, 1), (0, 2), ..., (1, 2), ...
- a recipe's numbers: {recipe}
- a pair's scores: {names}
"""


def write_huggingface(folder: Path, table: PairTable, images: Iterable[ImageRow]) -> int:
    """The number of images. folder: empty; ``datasets.load_dataset(folder)`` then reads it."""
    arrow, parquet = import_arrow()
    schema = _schema(arrow)
    (folder / "data").mkdir()
    count = 0
    for files, part in enumerate(batches_lazily(images, ROWS_PER_FILE)):
        with parquet.ParquetWriter(folder / "data" / f"train-{files:05d}.parquet", schema) as writer:
            for group in batches(part, ROWS_PER_GROUP):
                rows = [_row(image) for image in group]
                writer.write_table(arrow.Table.from_pylist(rows, schema))
                count += len(rows)
    card = CARD.format(
        fields=len(FIELDS),
        scores=len(table.score_names),
        recipe=", ".join(FIELDS),
        names=", ".join(table.score_names) or "none, the pairs were drawn",
    )
    (folder / "README.md").write_text(card)
    return count


def batches_lazily(images: Iterable[ImageRow], size: int) -> Iterator[Iterator[ImageRow]]:
    """Iterators of at most `size` images, none of which is read ahead; each must be used up before the next."""
    source = iter(images)
    for first in source:
        yield _first_and(first, source, size - 1)


def _first_and(first: ImageRow, source: Iterator[ImageRow], more: int) -> Iterator[ImageRow]:
    yield first
    for _ in range(more):
        following = next(source, None)
        if following is None:
            return
        yield following


def _schema(arrow: Any) -> Any:
    """With the features as `datasets` writes them into its own parquet files, so that images are decoded."""
    image = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    numbers = arrow.list_(arrow.list_(arrow.float32()))
    fields = {
        "key": arrow.string(),
        "image": image,
        "label": arrow.int64(),
        "class_name": arrow.string(),
        "generated": image,
        "recipes": arrow.list_(numbers),
        "scores": arrow.list_(numbers),
        "quality": numbers,
    }
    value = {"dtype": "float32", "_type": "Value"}
    two: dict[str, Any] = {"feature": {"feature": value, "_type": "List"}, "_type": "List"}
    features = {
        "key": {"dtype": "string", "_type": "Value"},
        "image": {"_type": "Image"},
        "label": {"dtype": "int64", "_type": "Value"},
        "class_name": {"dtype": "string", "_type": "Value"},
        "generated": {"_type": "Image"},
        "recipes": {"feature": two, "_type": "List"},
        "scores": {"feature": two, "_type": "List"},
        "quality": two,
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return arrow.schema(list(fields.items()), metadata=metadata)


def _row(image: ImageRow) -> dict[str, Any]:
    generated = None
    if image.generated is not None:
        fields = {name: content for name, content in image.generated.items() if name != "json"}
        generated = _picture(image.key, views_of_fields(fields)[0])
    arrays = {"recipes": image.recipes, "scores": image.scores, "quality": image.quality}
    return {
        "key": image.key,
        "image": _picture(image.key, image.fields),
        "label": image.label,
        "class_name": image.class_name,
        "generated": generated,
        **{name: None if values is None else values.tolist() for name, values in arrays.items()},
    }


def _picture(key: str, fields: Any) -> dict[str, Any]:
    extension, content = image_field(fields)
    return {"bytes": content, "path": f"{key}.{extension}"}
