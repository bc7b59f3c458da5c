import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import vs2fi as reference
from dealt_crew import deal
from hypothesis import given, settings
from hypothesis import strategies as st
from vs2fi_world import make_estimator, make_images

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.histograms import stage as stage_module
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage, image_groups, total_counts
from viewkit.pipelines.models.estimator import Embeddings, Estimator
from viewkit.pipelines.pairs.candidates import sample_candidates
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.sample import sizes_px
from viewkit.pipelines.vs2fi import artifact as artifact_module
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.counting import count_group
from viewkit.pipelines.vs2fi.embeddings import embed_candidates
from viewkit.pipelines.vs2fi.histogram import CELLS, count_cells
from viewkit.shards.errors import ConfigError, DataError, RefusedError

CONFIG = HistogramsConfig(negatives=9, images=40)


def fit(dataset, config=CONFIG):
    run_stage(HistogramsStage(), config, dataset, Execution(device="cpu"))
    return Histograms.load(dataset.artifact("histograms"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = make_images(tmp_path_factory.mktemp("histograms"))
    make_estimator(dataset)
    return dataset


@pytest.fixture(scope="module")
def histograms(dataset):
    return fit(dataset)


def test_counts_equal_plain_loops_over_groups_of_N_plus_1_images(dataset, histograms):
    estimator = make_estimator(dataset)
    images = dataset.column("images")
    keys = smallest(images.keys(), 40)
    positive, negative, sums = [], [], [[] for _ in range(estimator.num_exits)]
    policy = load_policy("strengthened").with_side(estimator.side_px)
    for start in range(0, 40, 10):
        group = keys[start : start + 10]
        pixels = [load_image(images.fields(images.place_of[key]), "cpu") for key in group]
        recipes = sample_candidates(
            policy, group, sizes_px(pixels), seed=0, stage="histograms", round=0, num_views=2, pipelines="random"
        )
        index = np.arange(10)[:, None].repeat(2, 1)
        top, exits = (z.tolist() for z in embed_candidates(estimator, pixels, recipes, index))
        for i in range(10):
            positive.append(reference.cosine(top[i][0], top[i][1]))
            negative += [reference.cosine(top[i][0], top[j][1]) for j in range(10) if j != i]
            for level in range(estimator.num_exits):
                for a, b in ((0, 1), (1, 0)):
                    others = [exits[j][b][level] for j in range(10) if j != i]
                    sums[level].append(reference.log_sum(exits[i][a][level], others, estimator.tau))
    assert histograms.num_images == 40
    assert_histogram(positive, histograms.similarity_edges, histograms.positive)
    assert_histogram(negative, histograms.similarity_edges, histograms.negative)
    for level, values in enumerate(sums):
        assert_histogram(values, histograms.log_sum_edges[level], histograms.log_sum[level])


def assert_histogram(values, edges, counts):
    """The loop's counts; a value that fp32 puts on the other side of an edge may move to the neighbouring bin."""
    inside = np.clip(values, edges[0], np.nextafter(edges[-1], -np.inf))
    slow = np.array(reference.histogram(inside.tolist(), edges.tolist()))
    assert counts.sum() == len(values)
    assert np.abs(np.cumsum(slow - counts)).max() <= 1


def test_the_artifact_is_the_same_bytes_for_any_sharding(dataset, histograms, tmp_path):
    files = ("histograms.safetensors", "histograms.json")
    ours = [hashlib.sha256(dataset.artifact("histograms").path(file).read_bytes()).digest() for file in files]
    other = make_images(tmp_path / "resharded", shard_rows=7)
    make_estimator(other)
    fit(other)
    theirs = [hashlib.sha256(other.artifact("histograms").path(file).read_bytes()).digest() for file in files]
    assert ours == theirs


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_groups_that_several_workers_count_give_the_bytes_of_one_process(dataset, histograms, monkeypatch, workers):
    ours, hired = dataset.path / "histograms", deal(monkeypatch, workers)
    for name in ("plot_consistency", "plot_alignment"):  # no part of the digest
        monkeypatch.setattr(stage_module, name, lambda histograms, folder: None)
    other = dataset_with(dataset)
    fit(other)
    files = ("histograms.safetensors", "histograms.json", "artifact.json")
    assert all((other.path / "histograms" / name).read_bytes() == (ours / name).read_bytes() for name in files)
    assert hired[0].parts == image_groups(dataset.column("images").keys(), 10, 40) and len(hired[0].parts) == 4


@settings(max_examples=10)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 1000), st.randoms())
def test_counts_of_groups_add_up_in_any_order_to_a_plain_count_of_all_pairs(n, groups, seed, order):
    generator = torch.Generator().manual_seed(seed)
    top, exits = torch.randn(groups, n, 2, 3, generator=generator), torch.randn(groups, n, 2, 2, 3, generator=generator)
    top, exits = torch.nn.functional.normalize(top, dim=-1), torch.nn.functional.normalize(exits, dim=-1)
    parts = [[each.numpy() for each in count_group(a, b, 0.2)] for a, b in zip(top, exits, strict=True)]
    order.shuffle(parts)
    positive, negative, sums = total_counts(iter(parts))
    plain_positive, plain_negative = np.zeros(CELLS, np.int64), np.zeros(CELLS, np.int64)
    for group in top:
        for i in range(n):
            plain_positive += count_cells((group[i, 0] * group[i, 1]).sum()).numpy()
            for j in set(range(n)) - {i}:
                plain_negative[int(((group[i, 0] @ group[j, 1]).double() * CELLS / 2).floor()) + CELLS // 2] += 1
    np.testing.assert_array_equal(positive, plain_positive)
    assert np.abs(np.cumsum(negative - plain_negative)).max() <= 1 and negative.sum() == plain_negative.sum()
    assert sums.shape == (2, CELLS) and (sums.sum(axis=1) == 2 * groups * n).all()


def test_json_states_edges_counts_and_what_they_were_counted_with(dataset, histograms):
    facts = json.loads(dataset.artifact("histograms").path("histograms.json").read_text())
    assert facts["negatives"] == 9 and facts["tau"] == 0.2 and facts["bins"] == 20 and facts["prior_positive"] == 0.5
    assert facts["estimator"] == dataset.artifact("estimator").digest
    assert facts["precision"] == "fp32" and dataset.artifact("histograms").numbers["chance"] == 0.1
    assert facts["num_positive_pairs"] == sum(facts["positive"]) == 40
    assert facts["num_negative_pairs"] == sum(facts["negative"]) == 4 * 10 * 9
    assert facts["num_log_sums"] == [sum(row) for row in facts["log_sum"]] == [80] * 6
    assert len(facts["similarity_edges"]) == 21 and np.shape(facts["log_sum_edges"]) == (6, 21)
    lowest, highest = math.log(9) - 1 / 0.2, math.log(9) + 1 / 0.2
    assert np.all((np.array(facts["log_sum_edges"]) >= lowest) & (np.array(facts["log_sum_edges"]) <= highest))


def test_plots_are_written_beside_and_kept_out_of_the_digest(dataset, histograms):
    artifact = dataset.artifact("histograms")
    assert {"consistency.png", "alignment.png"} <= set(artifact.files)
    assert {"consistency.png", "alignment.png"} <= set(artifact.receipt["logs"])


def test_parts_counted_apart_and_merged_equal_one_count(histograms):
    half = replace(
        histograms,
        positive_cells=histograms.positive_cells // 2,
        negative_cells=histograms.negative_cells // 2,
        soft_mean_cells=histograms.soft_mean_cells // 2,
        num_images=20,
    )
    rest = replace(
        histograms,
        positive_cells=histograms.positive_cells - half.positive_cells,
        negative_cells=histograms.negative_cells - half.negative_cells,
        soft_mean_cells=histograms.soft_mean_cells - half.soft_mean_cells,
        num_images=20,
    )
    merged = half.merge(rest)
    for name in ("positive", "negative", "similarity_edges", "log_sum", "log_sum_edges"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(histograms, name))
    assert merged.num_images == 40


def test_parts_with_another_N_or_tau_are_refused_by_name(histograms):
    with pytest.raises(RefusedError, match=r"negatives \(9 against 10\), tau \(0.2 against 0.1\)"):
        histograms.merge(replace(histograms, negatives=10, tau=0.1))


def test_another_side_than_the_estimators_is_refused(dataset):
    with pytest.raises(RefusedError, match=r"side_px \(32 against 64\)"):
        fit(dataset_with(dataset), replace(CONFIG, side_px=64))


def dataset_with(dataset):
    """The same dataset without histograms."""
    import shutil

    copy = dataset.path.parent / f"{dataset.path.name}-copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(dataset.path, copy, ignore=shutil.ignore_patterns("histograms"))
    return type(dataset)(copy)


def test_precision_is_recorded_and_changes_few_counts(dataset, histograms):
    bf16 = fit(dataset_with(dataset), replace(CONFIG, precision="bf16"))
    assert (histograms.precision, bf16.precision) == ("fp32", "bf16")
    assert np.any(bf16.positive_cells != histograms.positive_cells)
    for exact, near in ((histograms.positive, bf16.positive), (histograms.negative, bf16.negative)):
        assert np.abs(np.cumsum(exact - near)).max() <= 0.1 * exact.sum()
    with pytest.raises(RefusedError, match=r"precision \(fp32 against bf16\)"):
        histograms.merge(bf16)


def test_a_nan_embedding_names_the_row(dataset, monkeypatch):
    embed = Estimator.embed

    def broken(self, views):
        top, exits = embed(self, views)
        top = top.clone()
        top[6] = torch.nan  # view 0 of row 3 of the batch
        return Embeddings(top, exits)

    monkeypatch.setattr(Estimator, "embed", broken)
    key = smallest(dataset.column("images").keys(), 4)[3]
    with pytest.raises(DataError, match=rf"the estimator gives NaN for row {key} \(1 of 10 rows"):
        fit(dataset_with(dataset))


def test_an_image_that_does_not_decode_is_named(dataset, monkeypatch):
    load = stage_module.load_image
    key = smallest(dataset.column("images").keys(), 4)[2]
    images = dataset.column("images")
    bad = images.fields(images.place_of[key])

    def cut(fields, device):
        return load({"png": fields["png"][:-40]} if fields == bad else fields, device)

    monkeypatch.setattr(stage_module, "load_image", cut)
    with pytest.raises(DataError, match=rf"column 'images': row {key}: image of \d+ bytes does not decode"):
        fit(dataset_with(dataset))


def test_facts_that_lack_a_setting_are_an_error_naming_it(dataset, histograms, monkeypatch):
    read = artifact_module.decode_json
    monkeypatch.setattr(
        artifact_module,
        "decode_json",
        lambda data: {name: value for name, value in read(data).items() if name not in ("negatives", "tau")},
    )
    with pytest.raises(DataError, match="lacks negatives, tau; delete the folder and rerun 'viewkit histograms'"):
        Histograms.load(dataset.artifact("histograms"))


def test_too_few_images_for_one_group_say_how_many_negatives_fit():
    with pytest.raises(DataError, match=r"has 40 rows and --negatives 63 needs 64 .*give --negatives 39 or less"):
        image_groups([f"k{i}" for i in range(40)], 64, 100)


def test_groups_are_whole_disjoint_and_independent_of_the_listing_order():
    keys = [f"k{i}" for i in range(50)]
    groups = image_groups(keys, 8, 30)
    assert [len(group) for group in groups] == [8, 8, 8]
    assert len({key for group in groups for key in group}) == 24
    assert image_groups(keys[::-1], 8, 30) == groups


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 1}, "bins is 1"),
        ({"negatives": 0}, "negatives is 0"),
        ({"images": 100, "negatives": 1023}, "images is 100 and negatives is 1023"),
        ({"num_views": 1}, "num_views is 1"),
        ({"prior_positive": 1.0}, "prior_positive is 1.0"),
        ({"side_px": 0}, "side_px is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_impossible_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        HistogramsConfig(**options)
