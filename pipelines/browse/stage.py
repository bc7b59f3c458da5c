"""Stage `browse`: pairs, their numbers and their pixels, in one HTML file that opens without a server."""

from collections.abc import Mapping
from typing import Any, ClassVar

from viewkit.pipelines.browse.config import BrowseConfig
from viewkit.pipelines.browse.content import content_of
from viewkit.pipelines.browse.page import render_page
from viewkit.pipelines.browse.pictures import make_pictures
from viewkit.pipelines.browse.shown import Shown, logged_by, stored_pairs
from viewkit.pipelines.engine.contract import FitStage, Run
from viewkit.pipelines.labels import LABELS, labels_digest
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import GENERATED, ORIGINAL
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.files import write_atomic

PAGE = "index.html"
MEGABYTE = 1_000_000


class BrowseStage(FitStage[BrowseConfig]):
    """column: of the stored pairs to show. run: of a run, or of several with commas between, whose
    logged pairs are shown in their place, with their losses.

    Memory: the sample's numbers and the page's pictures, and one image with its views.
    """

    name: ClassVar[str] = "browse"
    version: ClassVar[int] = 2
    shown_as: ClassVar[str] = "browse"
    holds: ClassVar[Mapping[str, str]] = {"index.html": "the page, with its numbers and pictures inside"}
    writes = "browse"
    replaces: ClassVar[bool] = True

    def __init__(self, column: str = PAIRS, run: str | None = None) -> None:
        if run is not None and column != PAIRS:
            raise ConfigError(
                f"browse: column is '{column}' and run is '{run}': pairs are of one of them; leave one out"
            )
        runs = [] if run is None else run.split(",")
        if any(not each or "/" in each or each.startswith(".") for each in runs) or len(set(runs)) < len(runs):
            raise ConfigError(f"browse: run is '{run}'; it must be names of runs, folders below DATASET/runs, e.g. a,b")
        self.column, self.runs = column, runs

    def reads(self, config: BrowseConfig) -> tuple[str, ...]:
        return ("images", *(f"runs/{run}" for run in self.runs)) if self.runs else ("images", self.column)

    def inputs(self, config: BrowseConfig, dataset: Dataset) -> Mapping[str, str]:
        """Also whatever else is there of these pairs: histograms, generated views, qualities, attached labels; and what
        a policy that is given says."""
        found = dict(super().inputs(config, dataset))
        if config.policy is not None:
            found["policy"] = digest(load_policy(config.policy).to_dict())
        if (labels := labels_digest(dataset, for_stage=self.name)) is not None:
            found[LABELS] = labels
        for name in self._shown(config, dataset).beside():
            found[name] = dataset.input_digest(name, for_stage=self.name)
        return found

    def _shown(self, config: BrowseConfig, dataset: Dataset) -> Shown:
        if self.runs:
            return logged_by(dataset, self.runs, config.policy)
        if not dataset.is_column(self.column):
            raise DataError(
                f"browse: column '{self.column}' is an artifact, not pairs; name a column that 'viewkit score' or "
                "'viewkit draw' wrote"
            )
        return stored_pairs(dataset, self.column, config.policy)

    def fit(self, config: BrowseConfig, run: Run) -> Mapping[str, Any]:
        dataset, shown = run.dataset, self._shown(config, run.dataset)
        groups = shown.groups(config.points)
        side_px = config.side_px or shown.side_px or groups.side_px
        columns = {ORIGINAL: dataset.column("images")}
        if shown.genview is not None:
            columns[GENERATED] = dataset.column(shown.genview)
        most = min(len(groups.keys), config.pairs // len(groups.views))
        run.progress.start(self.name, most, "images")
        pictures = make_pictures(
            groups,
            columns,
            most=most,
            num_bytes=int(config.megabytes * MEGABYTE),
            side_px=side_px,
            thumb_px=config.thumb_px,
            interpolation=shown.policy.interpolation,
            progress=run.progress,
        )
        content = content_of(dataset, shown, groups, pictures, side_px)
        page = render_page(content, title=f"{dataset.path.resolve().name}: pairs").encode()
        write_atomic(run.folder / PAGE, page)
        return {
            "page": PAGE,
            "bytes": len(page),
            "pairs": len(groups.keys) * len(groups.views),
            "pairs_with_pictures": len(pictures.views) * len(groups.views),
            "axes": [axis["label"] for axis in content["axes"]],
            "absent": [each["label"] for each in content["absent"]],
        }
