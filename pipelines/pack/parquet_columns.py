"""Which columns of a parquet file hold images and labels: as its writer says, else by type and name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viewkit.pipelines.pack.keys import display
from viewkit.shards.errors import ConfigError, DataError

IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "picture", "photo", "image_bytes", "bytes")
LABEL_NAMES = ("label", "labels", "class", "cls", "target")


@dataclass(frozen=True)
class ImageTable:
    """image, label: names of columns. names: of the classes, as Hugging Face's metadata have them. text_labels: labels
    are names, not numbers. notes: what to say of it."""

    image: str
    label: str | None = None
    names: tuple[str, ...] = ()
    text_labels: bool = False
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.image,) if self.label is None else (self.image, self.label)


def table_of(schema: Any, file: str, image: str | None, label: str | None) -> ImageTable:
    """The columns to read of a file with this `pyarrow.Schema`. image, label: as the options name them.

    `ConfigError` for a column that is not there or holds something else, and where several hold images; `DataError`
    where none does.
    """
    features = _features(schema.metadata or {})
    found = _image_column(schema, features, file, image)
    name, notes = _label_column(schema, features, file, label)
    if name is None:
        return ImageTable(found, notes=notes)
    names = features.get(name, {}).get("names")
    listed = tuple(names) if isinstance(names, list) and all(isinstance(each, str) for each in names) else ()
    return ImageTable(found, name, listed, _is_text(schema.field(name).type), notes)


def _features(metadata: Mapping[bytes, bytes]) -> dict[str, dict[str, Any]]:
    """Column -> what `datasets` notes about it; empty where another program wrote the file."""
    try:
        told = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {str(name): each for name, each in told.items() if isinstance(each, dict)}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _image_column(schema: Any, features: Mapping[str, Mapping[str, Any]], file: str, asked: str | None) -> str:
    if asked is not None:
        _require(schema, file, asked, "--image-column")
        if not _holds_images(schema.field(asked).type):
            raise ConfigError(
                f"pack: --image-column is '{display(asked)}', of type {schema.field(asked).type} in '{display(file)}'; "
                "a column of encoded images is needed: binary, or struct<bytes, path>"
            )
        return asked
    usable = [field.name for field in schema if _holds_images(field.type) and schema.names.count(field.name) == 1]
    for among in (
        [name for name in usable if features.get(name, {}).get("_type") == "Image"],
        [name for name in usable if not _is_binary(schema.field(name).type)],
        [name for name in usable if name.lower() in IMAGE_NAMES],
        usable,
    ):
        if len(among) == 1:
            return among[0]
        if among:
            raise ConfigError(
                f"pack: '{display(file)}' has several columns that may hold images ({_listed(among)}); name one with "
                "--image-column"
            )
    raise DataError(
        f"pack: '{display(file)}' has no column of encoded images, binary or struct<bytes, path>; its columns are "
        f"{_listed(schema.names)}"
    )


def _label_column(
    schema: Any, features: Mapping[str, Mapping[str, Any]], file: str, asked: str | None
) -> tuple[str | None, tuple[str, ...]]:
    if asked is not None:
        _require(schema, file, asked, "--label-column")
        if not _holds_labels(schema.field(asked).type):
            raise ConfigError(
                f"pack: --label-column is '{display(asked)}', of type {schema.field(asked).type} in '{display(file)}'; "
                "a column of whole numbers or texts is needed"
            )
        return asked, ()
    usable = [field.name for field in schema if _holds_labels(field.type) and schema.names.count(field.name) == 1]
    declared = [name for name in usable if features.get(name, {}).get("_type") == "ClassLabel"]
    found = declared or [name for name in usable if name.lower() in LABEL_NAMES]
    if len(found) > 1:
        return None, (f"columns {_listed(found)} hold labels and none was kept; name one with --label-column",)
    return (found[0] if found else None), ()


def _require(schema: Any, file: str, name: str, option: str) -> None:
    if schema.names.count(name) != 1:
        raise ConfigError(
            f"pack: {option} is '{display(name)}', and '{display(file)}' has the columns {_listed(schema.names)}"
        )


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{display(name)}'" for name in names[:8]) + (", ..." if len(names) > 8 else "")


def _holds_images(kind: Any) -> bool:
    from pyarrow import types

    if types.is_struct(kind):
        places = [kind.get_field_index(name) for name in ("bytes", "path")]
        texts = places[1] < 0 or types.is_null(named := kind.field(places[1]).type) or _is_text(named)
        return places[0] >= 0 and texts and _is_binary(kind.field(places[0]).type)
    return _is_binary(kind)


def _is_binary(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _holds_labels(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind)) or _is_text(kind)
