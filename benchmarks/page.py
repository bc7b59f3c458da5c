"""How fast the page of `viewkit browse` opens and filters in Chromium, at 2,000, 20,000 and 200,000 pairs.

Loading is from the start of the navigation until the first points and histograms are drawn; filtering is one change of
a threshold, with everything that follows it drawn (the median of 40). The targets, 1 s and 16 ms at 20,000 pairs of
which 2,000 have pictures, are for two cores of a server without a GPU (docs/browse.md has what was measured).
"""

import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from harness import Fact, Row, main, sized

from viewkit.pipelines.browse.config import BrowseConfig
from viewkit.pipelines.browse.stage import PAGE, BrowseStage
from viewkit.pipelines.engine.execution import Devices
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pairs.candidates import RowSizes, sample_round
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.histogram import CELLS
from viewkit.pipelines.vs2fi.scores import score_pairs
from viewkit.shards.artifact import IDENTITY, finish_artifact
from viewkit.shards.codecs import encode_npy, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.files import make_folder
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Row as DataRow
from viewkit.shards.writer import ShardWriter

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run"]  # fmt: skip
VIEWS, EXITS, SIDE_PX, GAMMA = 5, 12, 32, 0.6
POLICY = load_policy("strengthened")
SAMPLED = {"policy": digest(POLICY.to_dict())}
CHANGES = 40

FILTER = """(count) => { const taken = []; for (let i = 0; i < count; i++) { const start = performance.now();
viewkit.setThresholds({kSc: (i % 10) / 10, share: null}); taken.push(performance.now() - start); } return taken; }"""
LOADED = "(({startTime, duration}) => startTime + duration)(performance.getEntriesByName('load')[0])"


def write_column(dataset: Dataset, name: str, stage: str, config: dict, inputs: dict, rows: list[DataRow]) -> None:
    folder = dataset.path / name
    make_folder(folder)
    identity = Identity(stage, 1, config, inputs, {"shards": 1, "rows": len(rows)})
    write_identity(folder / "column.json", identity)
    with ShardWriter(folder, 0, identity.digest) as writer:
        for row in rows:
            writer.write(row)
        writer.finish()


def make_histograms(dataset: Dataset, rng: np.random.Generator) -> Histograms:
    def counts(mean: float) -> np.ndarray:
        return np.histogram(rng.normal(mean, 0.15, 8000).clip(-1, 1), CELLS, (-1, 1))[0].astype(np.int64)

    histograms = Histograms(
        positive_cells=counts(0.6), negative_cells=counts(0.1), soft_mean_cells=np.stack([counts(0.3)] * EXITS),
        bins=20, negatives=1, tau=0.2, prior_positive=0.5, estimator="e" * 64, policy=POLICY.name, num_views=2,
        num_images=8000,
    )  # fmt: skip
    folder = dataset.path / "histograms"
    make_folder(folder)
    histograms.save(folder)
    identity = Identity("histograms", 1, {"policy": POLICY.name}, SAMPLED, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ())
    return histograms


def make_dataset(path: Path, pairs: int) -> Dataset:
    """Pictures of noise and random similarities for about so many pairs, at most eight rounds of each image."""
    dataset, rng = Dataset(path), np.random.default_rng(0)
    make_folder(path)
    per_round = len(pair_index(VIEWS))
    count = max(4, min(2500, pairs // per_round))
    rounds = -(-pairs // (count * per_round))
    keys = [f"image{k:05d}" for k in range(count)]
    small = rng.integers(0, 256, (count, 12, 12, 3), dtype=np.uint8).repeat(4, axis=1).repeat(4, axis=2)
    named = [{"png": encode_png(each), "cls": b"%d" % (k % 10)} for k, each in enumerate(small)]
    images = [DataRow(key, fields) for key, fields in zip(keys, named, strict=True)]
    write_column(dataset, "images", "pack", {}, {}, images)
    histograms = make_histograms(dataset, rng)
    sizes = [RowSizes(key, (48, 48)) for key in keys]
    options = {"seed": 0, "stage": "score", "num_views": VIEWS, "rounds": rounds}
    policy = POLICY.with_side(SIDE_PX)
    recipes = np.stack([sample_round(policy, sizes, round=each, **options) for each in range(rounds)], axis=1)
    similarities = rng.normal(0.45, 0.25, (count, rounds, per_round, 1 + EXITS)).clip(-1, 1).astype(np.float32)
    scores = score_pairs(similarities, histograms, GAMMA)
    rows = [
        DataRow(key, {"recipes.npy": encode_npy(recipes[k]), "scores.npy": encode_npy(scores[k])})
        for k, key in enumerate(keys)
    ]
    inputs = {**SAMPLED, **{name: dataset.input_digest(name, "score") for name in ("images", "histograms")}}
    write_column(dataset, "pairs", "score", {"policy": POLICY.name, "gamma": GAMMA}, inputs, rows)
    return dataset


def measure(browser, page: Path, rounds: int) -> tuple[float, float]:
    """Seconds to load, and milliseconds of a change; medians."""
    loads, changes = [], []
    for _ in range(rounds):
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.goto(f"file://{page}")
        tab.wait_for_function("window.viewkit")
        loads.append(
            tab.evaluate("(({startTime, duration}) => startTime + duration)(performance.getEntriesByName('load')[0])")
        )
        changes += tab.evaluate(FILTER, CHANGES)
        tab.close()
    return statistics.median(loads) / 1000, statistics.median(changes)


def run(rounds: int) -> tuple[Sequence[Row | Fact], Sequence[str]]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("page: there is no chromium on this machine (Debian: apt-get install chromium)")
    rows: list[Row | Fact] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for full in (2_000, 20_000, 200_000):
            pairs = sized(full, full // 100)
            dataset = make_dataset(Path(folder) / str(pairs), pairs)
            config = BrowseConfig(points=pairs, pairs=min(pairs, sized(2_000, 40)), megabytes=8)
            run_stage(BrowseStage(), config, dataset, Devices(device="cpu"))
            path = dataset.path / "browse" / PAGE
            load_s, filter_ms = measure(browser, path, sized(rounds, 1))
            found = {"load, s": load_s, "filter, ms": filter_ms, "size, MB": path.stat().st_size / 1e6}
            rows += [Fact(f"{full:,} pairs: {what}", value) for what, value in found.items()]
        browser.close()
    return rows, []


if __name__ == "__main__":
    main("page", run)
