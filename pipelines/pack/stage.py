"""Stage `pack`: a source's files into the column ``images``."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from viewkit.pipelines.engine.contract import MapStage, Run, ShardFn
from viewkit.pipelines.pack.added import open_added
from viewkit.pipelines.pack.config import PARQUET_OPTIONS, PackConfig
from viewkit.pipelines.pack.ingest import Unusable, ingest
from viewkit.pipelines.pack.keys import plain
from viewkit.pipelines.pack.raw import IMAGES, LABEL, PATH, reject_file
from viewkit.pipelines.pack.source import PackSources, open_source
from viewkit.shards.codecs import encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.identity import Identity
from viewkit.shards.row import Reject, Row


class PackStage(MapStage[PackConfig]):
    """source: a folder of images; a WebDataset tar, zip or parquet file, or a folder of these;
    ``torchvision:NAME:SPLIT:ROOT``, ``demo:train``, ``demo:test``; or ``mosaic:`` and one of these or the folder of a
    packed dataset."""

    name = "pack"
    shown_as = "images"
    holds: ClassVar[Mapping[str, str]] = {
        "jpg, png or webp": "one image, upright 8-bit RGB or grey; the source's bytes wherever decoders agree",
        "cls": "class index as ASCII digits, where there are labels",
        "json": "source, format, mode, size [height, width] in px (source_size, where it was resized), what was done, "
        "label, the source's own metadata",
        "others": "further members of a source tar, unchanged, e.g. mask.png",
    }
    version = 1
    uses_torch = False
    elsewhere = "another dataset, --add where the source has only got new files"

    def __init__(self, source: str) -> None:
        self.source = source
        self._opened: dict[PackConfig, PackSources] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "_opened": {}}  # a listing may be large, and workers are given it anyway

    @property
    def writes(self) -> str:
        return "images"

    def reads(self, config: PackConfig) -> tuple[str, ...]:
        return ()

    def inputs(self, config: PackConfig, dataset: Dataset) -> Mapping[str, str]:
        """The listing (relative paths and sizes; for `demo:` the photographs): a source that has changed is noticed."""
        found = {"listing": self.sources(config, dataset).digest}
        if self.source.startswith("mosaic:"):
            found["mosaic"] = config.mosaic_layout
        for name in (*PARQUET_OPTIONS, "short_side_px"):
            if getattr(config, name) is not None:
                found[name] = f"{name.replace('_', ' ')}: {getattr(config, name)}"
        return found

    def sources(self, config: PackConfig, dataset: Dataset) -> PackSources:
        """The source, listed once. Raises `DataError` when it is missing, empty or unreadable."""
        if config not in self._opened:
            source = open_source(self.source, config, leave_out=dataset.path)
            self._opened[config] = self._as_packed(source, config, dataset)
        return self._opened[config]

    def _as_packed(self, source: PackSources, config: PackConfig, dataset: Dataset) -> PackSources:
        """The source in the shards that the dataset has, where that has grown or is to grow."""
        if not dataset.is_column(self.writes):
            return source
        column = dataset.column(self.writes)
        is_packed = column.identity.inputs.get("listing") == source.digest
        if is_packed and not column.identity.earlier:
            return source
        if not is_packed and not config.add:
            return source
        return open_added(source, column, config.rows_per_shard, adds=not is_packed)

    def grows(self, config: PackConfig, dataset: Dataset, found: Identity, wanted: Identity) -> bool:
        """With --add, where nothing but the listing is another."""
        listing = {"listing": wanted.inputs["listing"]}
        return config.add and replace(found, inputs={**found.inputs, **listing}, plan=wanted.plan, earlier=()) == wanted

    def prepare(self, config: PackConfig, run: Run) -> ShardFn:
        def pack(rows: Iterator[Row]) -> Iterator[Row | Reject]:
            for row in rows:
                yield pack_row(row, config)

        return pack


def pack_row(raw: Row, config: PackConfig) -> Row | Reject:
    """One raw row of a source (`raw`) by the decoding policy (`ingest`). Never raises, whatever the bytes are.

    Row: the image, ``cls`` if there is one, ``json`` with what was found and done, and a sample's further members.
    """
    path = raw.fields[PATH].decode("utf-8", "surrogateescape")
    images = [extension for extension in raw.fields if extension in IMAGES]
    if not images:
        members = ", ".join(name for name in raw.fields if not name.startswith("/"))
        return reject_file(
            path, "no_image", f"no member is an image; the sample has {members or 'nothing'}", key=raw.key
        )
    if len(images) > 1:
        detail = f"{', '.join(images)}: name all but one like KEY.mask.png"
        return reject_file(path, "several_images", detail, key=raw.key)
    facts: dict[str, Any] = {"source": plain(path)}
    kept = {name: data for name, data in raw.fields.items() if not name.startswith("/") and name != images[0]}
    if "cls" in kept:
        label = kept["cls"].strip()
        if not (label.isdigit() and len(label) <= 9):
            return reject_file(
                path, "bad_label", f"KEY.cls is {kept['cls'][:40]!r}; a class index is needed", key=raw.key
            )
        kept["cls"] = b"%d" % int(label)
    if LABEL in raw.fields:
        facts["label"] = plain(raw.fields[LABEL].decode("utf-8", "surrogateescape"))
    try:
        if "json" in kept:
            facts["metadata"] = read_metadata(kept["json"])
        taken = ingest(
            raw.fields[images[0]],
            max_pixels=config.max_pixels,
            min_side_px=config.min_side_px,
            short_side_px=config.short_side_px,
        )
    except Unusable as refusal:
        return reject_file(path, refusal.reason, str(refusal), key=raw.key)
    facts.update(format=taken.format, mode=taken.mode, size=list(taken.size), done=list(taken.done))
    if taken.resized_from is not None:
        facts["source_size"] = list(taken.resized_from)
    if taken.profile:
        facts["colour_profile"] = "not applied"
    return Row(raw.key, {**kept, taken.extension: taken.data, "json": encode_json(facts)})


def read_metadata(data: bytes) -> Any:
    """The source's own KEY.json; NaN and infinities become null, as strict JSON has none. Raises `Unusable`."""
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=lambda _: None)
        encode_json(value)
    except (ValueError, RecursionError) as error:
        raise Unusable("bad_json", f"KEY.json is not JSON in UTF-8: {error}") from error
    return value
