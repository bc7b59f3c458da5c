"""`viewkit report`: one HTML page about whatever a dataset holds."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.pairs.column import has_scores, read_pairs
from viewkit.pipelines.pairs.generated import generated_column
from viewkit.pipelines.pairs.same_policy import interpolation_of
from viewkit.pipelines.published import read_records
from viewkit.pipelines.report.accuracy import accuracy_tables
from viewkit.pipelines.report.comparisons import compared_runs, comparison_names, show_comparison
from viewkit.pipelines.report.config import ReportConfig
from viewkit.pipelines.report.experiments import show_experiments
from viewkit.pipelines.report.findings import AUDIT_PICTURES, Findings, read_findings
from viewkit.pipelines.report.generated import (
    count_levels,
    draw_levels,
    fidelity_table,
    generator_findings,
    show_generated,
)
from viewkit.pipelines.report.indicators import default_threshold, draw_histograms, draw_scores, filter_words
from viewkit.pipelines.report.inventory import BROWSE, OWN, Inventory, take_inventory
from viewkit.pipelines.report.page import Content, render_page
from viewkit.pipelines.report.pairs import make_galleries
from viewkit.pipelines.report.pictures import Picture, fit_inside, picture
from viewkit.pipelines.report.runs import draw_curves, hard_view_table, runs_table
from viewkit.pipelines.report.verdicts import find_verdicts
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.shards.artifact import Artifact
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.column import Column
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.files import read_file, write_atomic

PAGE = "index.html"
PAIRS_PAGE = "../browse/index.html"
"""From the page to the one in which pairs are browsed."""
STRIP = 12
"""Images shown at the top."""
MASKS_PX = 900


class ReportStage(FitStage[ReportConfig]):
    """Reads what is complete and says what is missing, so a report can be made at any time."""

    name: ClassVar[str] = "report"
    version: ClassVar[int] = 6
    shown_as: ClassVar[str] = "report"
    holds: ClassVar[Mapping[str, str]] = {"index.html": "the page, with its pictures inside"}
    replaces: ClassVar[bool] = True
    """A report of an earlier state of the dataset is replaced."""

    @property
    def writes(self) -> str:
        return OWN

    def reads(self, config: ReportConfig) -> tuple[str, ...]:
        return ("images",)

    def inputs(self, config: ReportConfig, dataset: Dataset) -> Mapping[str, str]:
        """Everything that is complete, and what is unfinished: the page says so."""
        parts = {part.name: part.digest or "unfinished" for part in take_inventory(dataset).parts}
        parts |= {f"experiment {each.name}": digest(asdict(each)) for each in read_records(dataset)}
        return parts | ({"page of pairs": "there"} if can_browse(dataset) else {})

    def fit(self, config: ReportConfig, run: Run) -> Mapping[str, Any]:
        dataset, members = run.dataset, compared_runs(run.dataset)
        everything = take_inventory(dataset)
        inventory = everything.without(members)
        run.progress.start(self.name, 5, "sections")
        images = dataset.column("images") if inventory.has("images") else None
        genview = dataset.column("genview") if images and inventory.has("genview") else None

        pairs = dataset.column("pairs") if images and inventory.has("pairs") else None
        of_pairs = None if pairs is None else generated_column(pairs.identity.inputs)
        for name in ("pairs", "genview", *([of_pairs] if of_pairs else [])):
            if inventory.has(name):
                dataset.check_inputs(name)  # else its keys may not be those of the images
        sample, galleries = None, []
        if images and pairs and has_scores(pairs):
            sample = read_pairs(pairs, config.sample)
            galleries = make_galleries(
                sample,
                images,
                dataset.column(of_pairs) if of_pairs and inventory.has(of_pairs) else None,
                count=config.pairs,
                side_px=config.view_px,
                k_sc=default_threshold(dataset) if inventory.has("histograms") else None,
                interpolation=interpolation_of(pairs.identity),
            )
        run.progress.advance(1)
        generated, levels = [], {}
        if images and genview:
            generated = show_generated(
                images, genview, count=config.generated, side_px=config.view_px, sample=config.sample
            )
            levels = count_levels(genview, config.sample)
        run.progress.advance(1)
        histograms = Histograms.load(dataset.artifact("histograms")) if inventory.has("histograms") else None
        masks, sign = read_masks(dataset.artifact("foreground")) if inventory.has("foreground") else (None, "")
        run.progress.advance(1)
        tables = accuracy_tables(dataset, members)
        comparisons = [show_comparison(dataset, name) for name in comparison_names(dataset)]
        filter_lines = filter_words(dataset, sample) if sample and histograms else []
        content = Content(
            inventory=inventory,
            everything=everything,
            comparisons=comparisons,
            verdicts=find_verdicts(inventory, comparisons, tables, filter_lines),
            experiments=show_experiments(dataset),
            browse=PAIRS_PAGE if can_browse(dataset) else None,
            tables=tables,
            images=show_images(images, config.view_px) if images else [],
            galleries=galleries,
            num_rows_read=len(sample.keys) if sample else 0,
            num_exits=sample.num_exits if sample else 0,
            score_charts=draw_scores(sample) if sample else [],
            filter_lines=filter_lines,
            generated=generated,
            fidelity=fidelity_table(
                {
                    name: dataset.artifact(name)
                    for name in inventory.artifacts
                    if is_fidelity(name) and inventory.has(name)
                }
            ),
            generator=generator_findings(dataset.artifact("generator")) if inventory.has("generator") else None,
            level_charts=[draw_levels(levels)] if levels else [],
            masks=masks,
            masks_sign=sign,
            audit=read_findings(dataset.artifact("audit"), "audit.json", AUDIT_PICTURES)
            if inventory.has("audit")
            else None,
            histogram_charts=draw_histograms(histograms) if histograms else [],
            hard_views=find_hard_views([dataset.artifact(part.name) for part in inventory.runs]),
            curves=draw_curves([dataset.artifact(name) for name in trained(inventory)]),
            runs=runs_table([dataset.artifact(part.name) for part in inventory.runs]),
            version=metadata.version("viewkit"),
        )
        run.progress.advance(1)
        page = render_page(content).encode()
        write_atomic(run.folder / PAGE, page)
        run.progress.advance(1)
        return {
            "page": PAGE,
            "bytes": len(page),
            "missing": [name for name, _ in inventory.missing],
            "top1": {row.name: dict(row.top1) for table in tables for row in table.rows},
        }


def can_browse(dataset: Dataset) -> bool:
    """Whether the page is there in which pairs are browsed."""
    return dataset.is_artifact(BROWSE) and dataset.artifact(BROWSE).is_complete


def find_hard_views(runs: Sequence[Artifact]) -> Findings | None:
    """The importance tables of the runs that logged their views."""
    tables = tuple(table for run in runs if (table := hard_view_table(run)) is not None)
    return Findings(tables, ()) if tables else None


def is_fidelity(name: str) -> bool:
    """Whether `viewkit fidelity` wrote the artifact of this name."""
    return name == "fidelity" or name.startswith("fidelity_")


def trained(inventory: Inventory) -> list[str]:
    """Names of the finished artifacts that have training curves, the estimator first."""
    estimator = ["estimator"] if inventory.has("estimator") else []
    return [*estimator, *(part.name for part in inventory.runs)]


def show_images(images: Column, side_px: int) -> list[Picture]:
    """The images with the smallest key hashes."""
    keys = smallest(images.keys(), STRIP)
    pixels = [decode_image(images.fields(images.place_of[key])) for key in keys]
    return [picture(fit_inside(each, side_px), f"image {key}") for key, each in zip(keys, pixels, strict=True)]


def read_masks(foreground: Artifact) -> tuple[Picture | None, str]:
    """The contact sheet of foreground masks, where the artifact has one, and the sign in use."""
    if "masks.png" not in foreground.files:
        return None, ""
    with Image.open(io.BytesIO(read_file(foreground.path("masks.png")))) as image:
        pixels = np.asarray(image.convert("RGB"))
    if max(pixels.shape) > MASKS_PX:
        pixels = fit_inside(pixels, MASKS_PX)
    sign = str(decode_json(read_file(foreground.path("foreground.json"))).get("sign", ""))
    return picture(pixels, "Images, and what is foreground in them under either sign of the component"), sign
