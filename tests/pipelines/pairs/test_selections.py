"""Every selection of stored pairs from end to end: what a run's batches hold, what it counts, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from mosaic_world import POLICY, draw_and_score, mosaics
from small_datasets import CPU
from tiny_chain import photographs

from viewkit.pipelines.draw.config import DrawConfig
from viewkit.pipelines.draw.stage import DrawStage
from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import row_ids
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.pipelines.pairs.objects import Annotation, common_content, shown_shares
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.rules import facts_of, keep_pairs
from viewkit.pipelines.pairs.selections import SELECT, Selection
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.pairs import create_source
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.training.method import is_random, method_of
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import BOX, pixel_boxes
from viewkit.pipelines.views.sample import sample_recipes
from viewkit.shards.codecs import decode_npy
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

OPTIONS = {"policy": POLICY, "side_px": 16, "batch_size": 8}
LIMITS = {"vs2fi": {"k_sc": 0.6, "k_al": 2.0}}
PLAIN = ("row0002", "row0007", "row0019")
CONFIG = PretrainConfig(
    framework="simsiam", arch="resnet10_narrow", lr=0.05, epochs=2, warmup_epochs=0.0, batch_size=8, hidden=16, dim=16,
    side_px=16, policy=POLICY,
)  # fmt: skip
RULES = [name for name, each in SELECT.items() if each.stored]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = mosaics(tmp_path_factory.mktemp("selections") / "d", plain=PLAIN)
    draw_and_score(made)
    return made


def load(dataset, select, **options):
    return load_pairs(dataset, select=select, **{**OPTIONS, **LIMITS.get(select, {}), **options})


def pairs_of(dataset, select, epochs=2, **options):
    """Boxes of all pairs that would be trained on, and what was counted."""
    source = load(dataset, select, **options)
    samples = [sample for batch in source.loader.epoch(0) for sample in batch]
    plans = [source.sampler(samples, epoch) for epoch in range(epochs)]
    boxes = np.concatenate([plan.recipes[:, :, BOX] for plan in plans]).astype(np.float64)
    return boxes, {name: sum(plan.counts[name] for plan in plans) for name in plans[0].counts}


def overlaps_of(boxes):
    recipes = np.zeros((len(boxes), 2, 21), dtype=np.float32)
    recipes[:, :, BOX] = boxes
    return facts_of(recipes).overlaps[:, 0]


def stored_overlaps(dataset):
    column = dataset.column("pairs")
    recipes = np.concatenate([decode_npy(column.fields(place)["recipes.npy"]) for place in range(column.num_rows)])
    return facts_of(recipes).overlaps


def test_overlap_and_most_overlap_take_what_their_names_say(dataset):
    stored = stored_overlaps(dataset)
    none = int((stored <= 1e-6).all(axis=1).sum())
    for select in ("overlap", "most_overlap", "combined"):
        boxes, counts = pairs_of(dataset, select)
        assert counts == {"missing_pairs": 0, "missing_views": 0, "relaxed_pairs": none}
        found = overlaps_of(boxes)
        assert (found > 1e-6).sum() == len(found) - none
        if select == "most_overlap":
            np.testing.assert_allclose(np.sort(found), np.sort(stored.max(axis=1)), atol=1e-6)
    anything, _ = pairs_of(dataset, "stored")
    assert (
        overlaps_of(anything).mean() < overlaps_of(pairs_of(dataset, "overlap")[0]).mean() < stored.max(axis=1).mean()
    )


def test_drawn_pairs_without_scores_are_selected_by_their_overlaps_as_scored_ones_are(dataset):
    for select in ("stored", "overlap", "most_overlap", "oracle"):
        drawn, scored = (pairs_of(dataset, select, pairs=name)[0] for name in ("pairs_drawn", "pairs"))
        assert np.array_equal(drawn, scored)
    for select in ("similar", "combined", "vs2fi"):
        with pytest.raises(DataError, match="column 'pairs_drawn' was written by 'viewkit draw' and has no scores"):
            pairs_of(dataset, select, pairs="pairs_drawn")


def test_a_selection_is_added_by_one_line_of_the_table(dataset, monkeypatch):
    line = Selection("toy_selection:least_overlapping", needs=("overlaps",), counted=("relaxed_pairs",))
    monkeypatch.setitem(SELECT, "least_overlap", line)
    boxes, counts = pairs_of(dataset, "least_overlap")
    stored = stored_overlaps(dataset)
    least = np.where(stored > 1e-6, stored, np.inf).min(axis=1)
    np.testing.assert_allclose(np.sort(overlaps_of(boxes)), np.sort(np.where(np.isinf(least), 0, least)), atol=1e-6)
    assert counts["relaxed_pairs"] == np.isinf(least).sum()
    with pytest.raises(ConfigError, match="select is 'least_overlap' and alpha is 0"):
        load(dataset, "least_overlap", alpha=0.5)


def test_a_placebo_relaxes_the_same_rows_and_knows_nothing(dataset):
    stored = stored_overlaps(dataset).mean()
    for select in ("overlap", "most_overlap"):
        knowing, counts = pairs_of(dataset, select)
        placebo, same = pairs_of(dataset, select, epochs=40, placebo=True)
        assert same == {name: 20 * count for name, count in counts.items()}
        assert abs(overlaps_of(placebo).mean() - stored) < 0.01 < overlaps_of(knowing).mean() - stored - 0.04


def test_a_placebo_is_another_one_in_another_run_and_the_same_in_the_same(dataset):
    first, again, other = (pairs_of(dataset, "most_overlap", placebo=True, seed=seed)[0] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert {*map(bytes, first)} != {*map(bytes, other)}


def test_the_oracle_counts_rows_without_annotation_and_takes_pairs_of_one_tile(dataset):
    boxes, counts = pairs_of(dataset, "oracle")
    assert counts["missing_truth"] == 2 * len(PLAIN)
    tiles = np.array([(y, x, 0.5, 0.5) for y in (0, 0.5) for x in (0, 0.5)])
    ends = np.minimum(boxes[:, :, None, :2] + boxes[:, :, None, 2:], tiles[:, :2] + 0.5)
    starts = np.maximum(boxes[:, :, None, :2], tiles[:, :2])
    shares = np.maximum(ends - starts, 0).prod(axis=3) / boxes[:, :, None, 2:].prod(axis=3)  # n 2 4
    common = shares.min(axis=1).sum(axis=1)
    found = (common >= 0.45).sum()  # rounding to pixels moves the shares a little
    assert found >= len(boxes) - counts["relaxed_pairs"] - counts["missing_truth"]
    least = pairs_of(dataset, "oracle", oracle_share=0.01)[1]["relaxed_pairs"]
    assert least <= counts["relaxed_pairs"] <= pairs_of(dataset, "oracle", oracle_share=1.0)[1]["relaxed_pairs"]


def test_false_positives_and_overlaps_after_every_free_rule():
    """Known from another program on mosaics of 2 x 2 tiles with five candidates, where a false positive is a pair that
    shares no tile of a tenth of both crops: .46 of any pairs, .03, .01, none; mean overlaps .06, .18, .32, .19."""
    tiles = np.array([(y, x, 64.0, 64.0) for y in (0, 64) for x in (0, 64)])
    mosaic = Annotation(("tile",) * 4, np.ones(4, dtype=bool), tiles, None, np.zeros(4, dtype=np.int64))
    ids, sizes = row_ids([str(row) for row in range(1000)]), np.full((1000, 2), 128)
    recipes = sample_recipes(load_policy(POLICY), ids, sizes, seed=0, stage="draw", num_views=5)
    facts = facts_of(recipes, common=np.stack([common_content(mosaic, views, (128, 128)) for views in recipes]))
    crops = pixel_boxes(recipes.reshape(5000, -1), np.full((5000, 2), 128))
    shown = (shown_shares(mosaic, crops) >= 0.1).reshape(1000, 5, 4)
    first, second = pair_index(5).T
    false = ~(shown[:, first] & shown[:, second]).any(axis=2)

    def after(select, what):
        kept = keep_pairs(select, facts).pairs
        return float(((what * kept).sum(axis=1) / kept.sum(axis=1)).mean())

    rules = ("stored", "overlap", "most_overlap", "oracle")
    assert [after(rule, false) for rule in rules] == pytest.approx([0.46, 0.03, 0.01, 0], abs=0.015)
    assert [after(rule, facts.overlaps) for rule in rules] == pytest.approx([0.06, 0.18, 0.32, 0.19], abs=0.01)


def test_the_oracle_reads_mosaics_as_pack_writes_them(tmp_path):
    packed = Dataset(tmp_path / "d")
    run_stage(PackStage(f"mosaic:{photographs(tmp_path / 'photos')}"), PackConfig(mosaics=24), packed, CPU)
    run_stage(DrawStage(), DrawConfig(rounds=1, num_views=5, candidates="original", policy=POLICY), packed, CPU)
    source = load(packed, "oracle")
    samples = next(source.loader.epoch(0))
    plan = source.sampler(samples, 0)
    assert plan.counts["missing_truth"] == 0
    common = [
        common_content(sample.annotation, views, tuple(sample.image.shape[:2]))[0]
        for sample, views in zip(samples, plan.recipes, strict=True)
    ]
    assert sum(share >= 0.5 for share in common) == len(samples) - plan.counts["relaxed_pairs"] and min(common) > 0


def test_an_oracle_without_any_annotation_is_refused_up_front(tmp_path):
    plain = mosaics(tmp_path / "d", count=8, plain=[f"row{k:04d}" for k in range(8)])
    draw_and_score(plain)
    with pytest.raises(DataError, match="select is 'oracle' and none of 8 images has annotated objects that fit it; "):
        load(plain, "oracle")


def test_what_excludes_each_other_is_refused_from_python_too(dataset):
    with pytest.raises(ConfigError, match="placebo is on and select is 'stored'"):
        load(dataset, "stored", placebo=True)
    with pytest.raises(ConfigError, match=r"select is 'most_overlap' and alpha is 0\.5: crops of different images"):
        load(dataset, "most_overlap", alpha=0.5)
    with pytest.raises(ConfigError, match="select is 'hard'; it must be one of random, stored, vs2fi, similar, o"):
        load(dataset, "hard")


def test_a_placebo_and_the_oracles_share_belong_to_the_identity():
    def settings(**options):
        return PretrainStage("x").settings(replace(CONFIG, **options))

    assert settings(select="overlap") != settings(select="overlap", placebo=True)
    assert (
        settings(select="oracle")["oracle_share"] == 0.5 != settings(select="oracle", oracle_share=0.2)["oracle_share"]
    )
    assert settings(select="stored")["oracle_share"] is None
    assert method_of(settings(select="combined", placebo=True)) == "simsiam, combined, placebo"
    assert not is_random(settings(select="overlap"))


@pytest.mark.parametrize("select", RULES)
def test_a_run_trains_on_the_pairs_that_load_pairs_gives(dataset, select):
    config = replace(CONFIG, select=select, **LIMITS.get(select, {}))
    run = Run(dataset=dataset, folder=dataset.path, stage="pretrain")
    ours = next(create_source(resolve(config), run).epoch(1))
    theirs = next(load(dataset, select, epochs=2).epoch(1))
    assert np.array_equal(ours.scene.recipes, theirs.scene.recipes) and ours.counts == theirs.counts


def check_run(dataset, select, placebo):
    config = replace(CONFIG, select=select, placebo=placebo, **LIMITS.get(select, {}))
    name = f"{select}-{placebo}"
    numbers = run_stage(PretrainStage(name), config, dataset, CPU).numbers
    assert np.isfinite(numbers["loss"]) and numbers["steps"] == 6
    counted = SELECT[select].counted
    assert ("relaxed" in numbers) == ("relaxed_pairs" in counted) and ("k_sc" in numbers) == (select == "vs2fi")
    assert numbers.get("missing_truth") == (2 * len(PLAIN) if select == "oracle" else None)
    assert dataset.artifact(f"runs/{name}").identity.config["placebo"] == placebo


def test_a_run_ends_with_what_its_selection_counted(dataset):
    check_run(dataset, "oracle", placebo=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("select", "placebo"),
    [(name, placebo) for name in RULES for placebo in (False, True) if SELECT[name].needs or not placebo],
)
def test_every_selection_trains(dataset, select, placebo):
    check_run(dataset, select, placebo)
