import shutil

import pytest
from tiny_chain import make, photographs

from viewkit.pipelines.training.pair_loader import load_pairs
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError
from viewkit.shards.row import Row
from viewkit.shards.writer import ShardWriter

OPTIONS = {"policy": "moco_v3_vit", "side_px": 32, "batch_size": 8}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    made = Dataset(tmp_path_factory.mktemp("pairs") / "data")
    make(photographs(tmp_path_factory.mktemp("photographs")), made)
    return made


@pytest.mark.parametrize("options", [{}, {"select": "vs2fi"}, {"alpha": 1.0}])
def test_ranks_share_the_batches_of_one_process(dataset, options):
    (whole,) = [batch.views1 for batch in load_pairs(dataset, **{**OPTIONS, "batch_size": 24}, **options).epoch(0)]
    parts = [
        load_pairs(dataset, **{**OPTIONS, "batch_size": 12}, rank=rank, world_size=2, **options) for rank in (0, 1)
    ]
    halves = [next(iter(part.epoch(0))).views1 for part in parts]
    assert whole.shape == (24, 3, 32, 32)
    assert [bool((whole[place * 12 : place * 12 + 12] == half).all()) for place, half in enumerate(halves)] == [
        True
    ] * 2


def test_pairs_that_were_scored_on_other_images_are_refused(dataset, tmp_path):
    copy = Dataset(shutil.copytree(dataset.path, tmp_path / "data"))
    images = copy.column("images")
    rows = [Row(row.key, {**row.fields, "json": b"{}"}) for row in images.rows(0)]
    with ShardWriter(images.path, 0, images.identity.digest) as writer:
        for outcome in [*rows, *(reject for _, reject in images.receipt(0).rejects)]:
            writer.write(outcome)
        writer.finish()
    with pytest.raises(DataError, match="made from another 'images' than the one that is there now"):
        load_pairs(Dataset(copy.path), **OPTIONS, select="vs2fi")


def test_a_missing_column_names_the_command_that_makes_it(dataset, tmp_path):
    shutil.copytree(dataset.path / "images", tmp_path / "data" / "images")
    with pytest.raises(DataError, match="has no column 'pairs'; make it with 'viewkit score"):
        load_pairs(Dataset(tmp_path / "data"), **OPTIONS, select="vs2fi")
