"""A table of a dataset's pairs: a row per stored pair, with its boxes, its scores and what is known of its image."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from viewkit.pipelines.labels import labels_of
from viewkit.pipelines.pairs.column import RECIPES, SCORES, check_pairs_name, has_scores, score_names
from viewkit.pipelines.pairs.generated import GENVIEW, check_genview, generated_column
from viewkit.pipelines.pairs.load import check_quality
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.samples import QUALITY
from viewkit.pipelines.pairs.select import pair_overlaps
from viewkit.pipelines.views.recipe import BOX, SOURCE, check_recipes
from viewkit.shards.codecs import decode_json, decode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, MissingError
from viewkit.shards.row import Row
from viewkit.shards.sources import ColumnSources

SIDES = ("top", "left", "height", "width")
SOURCES = ("original", "generated")

Fields = Mapping[str, bytes]
Record = dict[str, Any]
"""One row of the table: every name of `PairTable.kinds`, None where it is not known."""


@dataclass(frozen=True, eq=False)
class ImageRow:
    """An image with its pairs. records: of every pair, none where the image has no pairs.

    fields, generated: of the image and of its generated view. recipes: of the stored views, scores: of their pairs.
    """

    key: str
    fields: Fields
    generated: Fields | None
    label: int | None
    class_name: str | None
    recipes: Float32[np.ndarray, "r v p"] | None
    scores: Float32[np.ndarray, "r c s"] | None
    quality: Float32[np.ndarray, "r c"] | None
    records: list[Record]


class PairTable:
    """Reads a dataset's images with their pairs, shard by shard: one shard's columns are in memory at a time.

    pairs: the column of pairs. quality, genview: further columns; None: those named so and made for these pairs, where
    there are any. Raises `DataError` for a column that is missing, unfinished or of other images.
    """

    def __init__(
        self, dataset: Dataset, pairs: str = PAIRS, quality: str | None = None, genview: str | None = None
    ) -> None:
        check_pairs_name("export", pairs)
        self.dataset, self.pairs = dataset, dataset.column(pairs)
        self.quality = self._quality(quality)
        self.genview = self._genview(genview)
        names = ["images", pairs, *(name for name in (self.quality, self.genview) if name is not None)]
        for name in names:
            dataset.check_inputs(name)
        self.sources = ColumnSources(dataset, names)
        self.labels = labels_of(dataset)
        self.score_names = self._score_names()

    @property
    def kinds(self) -> dict[str, type]:
        """Every column of the table with the kind of its values, in order."""
        boxes = {f"{side}{view}": float for view in (1, 2) for side in SIDES}
        return {
            "key": str,
            "label": int,
            "round": int,
            "pair": int,
            "view1": int,
            "view2": int,
            "source1": str,
            "source2": str,
            **boxes,
            "overlap": float,
            **dict.fromkeys(self.score_names, float),
            "quality": float,
            "level": int,
            "foreground_share": float,
        }

    def images(self) -> Iterator[ImageRow]:
        """Every image in the order of the dataset."""
        for shard in range(self.sources.num_shards):
            for row in self.sources.rows(shard):
                yield self._image(row)

    def records(self) -> Iterator[Record]:
        """Every pair of every image."""
        for image in self.images():
            yield from image.records

    def _image(self, row: Row) -> ImageRow:
        where = f"column '{self.pairs.name}', row {row.key}"
        stored = row.joined[self.pairs.name]
        generated = row.joined[self.genview] if self.genview is not None else None
        recipes = scores = quality = None
        if stored is not None:
            try:
                recipes = check_recipes(decode_npy(stored[RECIPES]), where)
                scores = decode_npy(stored[SCORES]) if self.score_names else None
            except KeyError as error:
                raise DataError(f"{where}: lacks {error}; delete the column and write it again") from error
            needed = (recipes.shape[0], len(pair_index(recipes.shape[1])))
            if self.quality is not None and (rated := row.joined[self.quality]) is not None:
                quality = decode_npy(rated["quality.npy"])
            for name, values in (("scores", scores), ("quality", quality)):
                if values is not None and values.shape[:2] != needed:
                    raise DataError(
                        f"{where}: {name} of shape {list(values.shape)} for recipes of shape {list(recipes.shape)}; "
                        "run 'viewkit verify', or write the column again"
                    )
        label = self.labels.of(row.key, row.fields)
        facts = {
            "key": row.key,
            "label": None if label is None else int(label),
            **_generated_facts(row.key, generated),
        }
        records = [] if recipes is None else self._records(facts, recipes, scores, quality)
        return ImageRow(
            row.key, row.fields, generated, facts["label"], self._class_name(row), recipes, scores, quality, records
        )

    def _records(
        self,
        facts: Record,
        recipes: Float32[np.ndarray, "r v p"],
        scores: Float32[np.ndarray, "r c s"] | None,
        quality: Float32[np.ndarray, "r c"] | None,
    ) -> list[Record]:
        views = pair_index(recipes.shape[1])  # c 2
        boxes, sources = recipes[..., BOX], recipes[..., SOURCE].astype(int)
        overlaps, shown = shortest(pair_overlaps(boxes.astype(np.float64)).astype(np.float32)), shortest(boxes)
        numbers = None if scores is None else shortest(scores)
        rated = None if quality is None else shortest(quality)
        empty: Record = dict.fromkeys(self.kinds)
        records = []
        for round_ in range(len(recipes)):
            for pair, (first, second) in enumerate(views.tolist()):
                same = sources[round_, first] == sources[round_, second]
                record = empty | facts
                record |= {"round": round_, "pair": pair, "view1": first, "view2": second}
                for number, view in ((1, first), (2, second)):
                    record[f"source{number}"] = SOURCES[sources[round_, view]]
                    record |= {f"{side}{number}": shown[round_, view, at].item() for at, side in enumerate(SIDES)}
                record["overlap"] = overlaps[round_, pair].item() if same else None
                if numbers is not None:
                    record |= dict(zip(self.score_names, numbers[round_, pair].tolist(), strict=True))
                if rated is not None and not np.isnan(rated[round_, pair]):
                    record["quality"] = rated[round_, pair].item()
                records.append(record)
        return records

    def _class_name(self, row: Row) -> str | None:
        """What the source, or the attached label, calls the row's class, where it says."""
        if "cls" not in row.fields and row.key in self.labels.attached:
            return self.labels.classes.get(self.labels.attached[row.key])
        facts = decode_json(row.fields["json"]) if "json" in row.fields else {}
        name = facts.get("label") if isinstance(facts, dict) else None
        return name if isinstance(name, str) else None

    def _quality(self, asked: str | None) -> str | None:
        if asked is None and not self.dataset.is_column(QUALITY):
            return None
        try:
            check_quality(self.dataset, self.pairs.name, asked or QUALITY)
        except MissingError:
            raise
        except DataError:
            if asked is None:
                return None  # it rates other pairs, and nobody asked for it
            raise
        return asked or QUALITY

    def _genview(self, asked: str | None) -> str | None:
        if asked is not None:
            return check_genview(asked)
        made_with = generated_column(self.pairs.identity.inputs)
        return made_with or (GENVIEW if self.dataset.is_column(GENVIEW) else None)

    def _score_names(self) -> tuple[str, ...]:
        """Of the scores of these pairs; none of drawn ones."""
        if not has_scores(self.pairs) or not self.pairs.num_rows:
            return ()
        fields = self.pairs.fields(0)
        if SCORES not in fields:
            raise DataError(f"column '{self.pairs.name}': its rows lack '{SCORES}'; rerun 'viewkit score'")
        return score_names(decode_npy(fields[SCORES]).shape[-1] - 3)


def shortest(values: Float32[np.ndarray, "*n"]) -> Float64[np.ndarray, "*n"]:
    """The same numbers in float64 as their shortest decimals, so that 0.1 prints as 0.1 and reads back as it was."""
    return values.astype("U32").astype(np.float64)


def _generated_facts(key: str, generated: Fields | None) -> Record:
    if generated is None or "json" not in generated:
        return {}
    facts = decode_json(generated["json"])
    if not isinstance(facts, dict):
        raise DataError(f"row {key}: the facts of its generated view are no JSON object; run 'viewkit verify'")
    return {name: facts.get(name) for name in ("level", "foreground_share")}
