"""`viewkit.webdataset`: every row once over nodes and workers, the same fields as the loader reads, damage an error."""

import pickle
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
import webdataset as wds
from torch.utils.data import DataLoader
from written_pairs import ROWS, UNGENERATED, UNLABELLED, UNSCORED, quality_of, recipes_of, scores_of, written_pairs

from viewkit.pipelines.losses.row_weights import quality_weights, quality_weights_within
from viewkit.pipelines.pairs.load import load_pairs
from viewkit.pipelines.pairs.stream import webdataset
from viewkit.shards.codecs import decode_image
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.loader import Loader

PAIRS = {"policy": "strengthened", "side_px": 16, "other_policy": True}
COLUMNS = ("images", "pairs", "quality", "genview")
SCORES = ["semantic_consistency", "alignment_level", "similarity_top", *(f"similarity_exit_{e}" for e in range(1, 5))]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return written_pairs(tmp_path_factory.mktemp("stream") / "data")


def keys_of(rows):
    return [row["__key__"] for row in rows]


def test_rows_hold_the_fields_that_the_loader_reads_joined_by_key(dataset):
    loader = Loader(dataset, COLUMNS, batch_size=1, seed=0, transform=lambda row: row)
    wanted = {row.key: row for (row,) in loader.epoch(0)}
    rows = list(webdataset(dataset, COLUMNS, decode=False))
    assert sorted(keys_of(rows)) == sorted(wanted)
    for fields in rows:
        row = wanted[fields["__key__"]]
        expected = dict(row.fields)
        for column, others in row.joined.items():
            expected |= {f"{column}.{name}": content for name, content in (others or {}).items()}
        assert {name: content for name, content in fields.items() if not name.startswith("__")} == expected
        assert fields["__url__"].endswith(".tar") and dataset.column("images").place_of[row.key] // 6 == int(
            fields["__url__"][-10:-4]
        )


def test_in_order_or_shuffled_each_epoch_in_another_order_that_the_seed_decides(dataset):
    keys = list(dataset.column("images").keys())
    assert keys_of(webdataset(dataset, shuffle=0)) == keys
    pipeline = webdataset(dataset, shuffle=8)
    orders = [keys_of(pipeline) for _ in range(3)]
    assert all(sorted(order) == keys for order in orders) and len({tuple(order) for order in orders}) == 3
    assert keys_of(pipeline.set_epoch(1)) == orders[1] == keys_of(webdataset(dataset, shuffle=8).set_epoch(1))
    assert keys_of(webdataset(dataset, shuffle=8, seed=1)) != orders[0]
    mixed = [key for key in orders[0][:8] if key in keys[:6]]
    assert len(mixed) < 6, "rows of several shards are mixed"


@pytest.mark.parametrize("shuffle", [4, pytest.param(0, marks=pytest.mark.slow)])
def test_nodes_and_workers_share_every_row_once_in_every_epoch(dataset, monkeypatch, shuffle):
    found = {0: [], 1: []}
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        pipeline = webdataset(dataset, shuffle=shuffle)
        for epoch in found:
            loader = DataLoader(pipeline.set_epoch(epoch), batch_size=None, num_workers=2)
            found[epoch] += keys_of(loader)
    for keys in found.values():
        assert Counter(keys) == Counter(dataset.column("images").keys())
    assert (found[0] != found[1]) == (shuffle > 0)


def test_processes_without_a_shard_are_refused(dataset, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "5")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match="5 processes and 4 shards, so some would get no row; pack with fewer"):
        next(iter(webdataset(dataset)))


def test_fields_are_decoded_strictly_or_by_webdatasets_own_decoder(dataset):
    first = next(iter(webdataset(dataset, COLUMNS, shuffle=0)))
    stored = dataset.column("images").fields(0)
    assert np.array_equal(first["png"], decode_image(stored)) and first["cls"] == 0
    assert first["json"] == {"label": "kind 0"} and first["genview.json"]["level"] == 0
    assert np.array_equal(first["pairs.recipes.npy"], recipes_of(0))
    assert np.array_equal(first["pairs.scores.npy"], scores_of(0))
    assert np.array_equal(first["quality.quality.npy"], quality_of(0))
    image, scores = next(
        iter(webdataset(dataset, COLUMNS, shuffle=0, decode="pil").to_tuple("png", "pairs.scores.npy"))
    )
    assert np.array_equal(np.asarray(image.convert("RGB")), first["png"]) and np.array_equal(scores, scores_of(0))


def test_rows_that_a_column_rejected_lack_its_fields_or_are_left_out(dataset):
    rows = {row["__key__"]: row for row in webdataset(dataset, COLUMNS)}
    assert len(rows) == ROWS and "pairs.scores.npy" not in rows[UNSCORED] and "cls" not in rows[UNLABELLED]
    assert [key for key, row in sorted(rows.items()) if "genview.png" not in row] == list(UNGENERATED)
    complete = keys_of(webdataset(dataset, COLUMNS, complete=True))
    assert set(rows) - set(complete) == {UNSCORED, *UNGENERATED}


def test_it_is_a_pipeline_as_webdataset_has_them(dataset):
    pipeline = webdataset(dataset, shuffle=0).to_tuple("__key__", "png")
    pipeline = pipeline.batched(4, collation_fn=None, partial=False)
    assert isinstance(pipeline, wds.DataPipeline)
    batches = list(pipeline.with_epoch(nbatches=7))
    assert len(batches) == 7 and all(len(batch) == 4 for batch in batches)


@pytest.mark.parametrize("column", ["images", "pairs"])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_damage_is_an_error_that_names_the_shard_where_webdataset_would_drop_rows(dataset, tmp_path, column, workers):
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "data"))
    tar = copy.path / column / "000002.tar"
    raw = bytearray(tar.read_bytes())
    raw[len(raw) // 2] ^= 1
    tar.write_bytes(raw)
    loader = DataLoader(webdataset(copy, ("images", "pairs")), batch_size=None, num_workers=workers)
    with pytest.raises(DataError, match=rf"{column}/000002\.tar: damaged at"):
        list(loader)


def test_columns_of_other_images_and_options_that_do_not_fit_are_refused(dataset):
    for call, message in [
        ({"columns": ("images", "scores")}, "has no column 'scores'"),
        ({"columns": "images"}, "columns is 'images'; give a list of names"),
        ({"columns": ("images", "images")}, "each once"),
        ({"shuffle": -1}, "shuffle is -1"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
        ({"batch_size": 8}, "batch_size belongs to pairs; give select, too"),
        ({"side_px": 32}, "side_px belongs to pairs"),
        ({"select": "vs2fi", "policy": "simclr"}, "select='vs2fi' renders pairs, which needs side_px"),
        ({"select": "vs2fi", "decode": "pil", **PAIRS}, "the columns and their decoding follow from it"),
        ({"select": "best", **PAIRS}, "select is 'best'"),
        ({"select": "random", "batch_size": 0, **PAIRS}, "batch_size is 0"),
        ({"select": "random", "steps": 9, **PAIRS}, "leave steps out"),
        ({"select": "random", "rank": 1, **PAIRS}, "leave rank out"),
    ]:
        with pytest.raises((ConfigError, DataError), match=message):
            webdataset(dataset, **call)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"select": "random"},
        {"select": "random", "alpha": 0.5},
        {"select": "stored"},
        {"select": "vs2fi", "k_sc": 0.3},
        {"select": "vs2fi", "k_sc": 0.3, "placebo": True},
    ],
)
def test_pairs_are_those_of_load_pairs_rendered_alike(dataset, options):
    source = load_pairs(dataset, batch_size=1, **PAIRS, **options)
    keys = source.loader.first.keys()
    wanted = {
        epoch: {keys[row]: batch for (row,), batch in zip(source.loader.order(epoch), source.epoch(epoch), strict=True)}
        for epoch in (0, 1)
    }
    batches = webdataset(dataset, shuffle=5, batch_size=4, **PAIRS, **options)
    for epoch in (0, 1):
        found = 0
        for batch in batches:
            for place, key in enumerate(batch["__key__"]):
                for name, view in (("views1", 0), ("views2", 1)):
                    torch.testing.assert_close(batch[name][place], wanted[epoch][key].views[view][0])
                found += 1
        assert found == ROWS


def test_a_pair_comes_with_its_scores_its_label_and_its_recipes(dataset):
    rows = list(webdataset(dataset, shuffle=0, select="vs2fi", k_sc=0.3, weights="quality", **PAIRS))
    assert keys_of(rows) == list(dataset.column("images").keys())
    for number, row in enumerate(rows):
        assert row["views1"].shape == (3, 16, 16) and row["cls"] == (-1 if row["__key__"] == UNLABELLED else number % 3)
        if row["__key__"] == UNSCORED:
            assert row["semantic_consistency"].isnan() and row["quality"].isnan()
            continue
        stored, scores = recipes_of(number)[0], scores_of(number)[0]
        views = sorted(int(np.flatnonzero((stored == recipe.numpy()).all(axis=1))[0]) for recipe in row["recipes"])
        pair = [(0, 1), (0, 2), (1, 2)].index(tuple(views))
        assert [row[name].item() for name in SCORES] == scores[pair].tolist()
        assert row["quality"].isnan() if (number, pair) == (4, 0) else row["quality"] == quality_of(number)[0, pair]


def test_batches_hold_weights_that_sum_to_their_rows_and_are_those_of_the_trainer(dataset):
    options = {"select": "stored", "batch_size": 5, **PAIRS}
    batches = list(webdataset(dataset, weights="quality", **options))
    assert sorted(len(batch["__key__"]) for batch in batches) == [2, 5, 5, 5, 5]
    for batch in batches:
        assert batch["weights"].sum() == pytest.approx(len(batch["__key__"]))
        torch.testing.assert_close(batch["weights"], quality_weights(batch["quality"]))
    assert quality_weights_within(torch.zeros(3)).tolist() == [1, 1, 1]
    assert "quality" not in (plain := next(iter(webdataset(dataset, **options)))) and bool(
        (plain["weights"] == 1).all()
    )


def test_pairs_reach_workers_that_are_spawned(dataset):
    pipeline = pickle.loads(pickle.dumps(webdataset(dataset, select="random", batch_size=8, **PAIRS)))  # noqa: S301
    again = webdataset(dataset, select="random", batch_size=8, **PAIRS)
    for one, other in zip(pipeline, again, strict=True):
        assert one["__key__"] == other["__key__"] and torch.equal(one["views2"], other["views2"])
