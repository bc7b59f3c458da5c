"""Any single flipped bit and any cut, in any file of a dataset, is found by `verify` and by reading."""

import random
from dataclasses import replace

import pytest
from small_datasets import CPU, contents, numbers_dataset
from toy_stages import LengthsConfig, LengthsStage, TotalConfig, TotalStage

from viewkit.pipelines.engine.run import run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, ViewkitError
from viewkit.shards.row import Row
from viewkit.shards.verify import verify
from viewkit.shards.writer import ShardWriter


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    dataset = numbers_dataset(tmp_path_factory.mktemp("whole"), rows=12, rows_per_shard=6)
    run_stage(LengthsStage(), LengthsConfig(), dataset, CPU)
    run_stage(TotalStage(), TotalConfig(), dataset, CPU)
    return dataset


def problems(dataset):
    return [finding.problem for finding in verify(Dataset(dataset.path)) if finding.problem]


def read_positioned(dataset):
    for name in Dataset(dataset.path).columns():
        column = Dataset(dataset.path).column(name)
        for index in range(column.num_rows):
            column.fields(index)


def read_in_order(dataset):
    for name in Dataset(dataset.path).columns():
        column = Dataset(dataset.path).column(name)
        for shard in range(column.num_shards):
            for _ in column.rows(shard):
                pass


def read_artifact(dataset):
    artifact = Dataset(dataset.path).artifact("total")
    for file in artifact.files:
        artifact.path(file)


def read_all(dataset):
    read_positioned(dataset)
    read_artifact(dataset)


def flips(raw, count):
    generator = random.Random(len(raw))
    for bit in sorted(generator.sample(range(8 * len(raw)), min(count, 8 * len(raw)))):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


def cuts(raw, count):
    generator = random.Random(len(raw))
    yield b""
    yield raw[:-1]
    for length in generator.sample(range(len(raw)), min(count, len(raw))):
        yield raw[:length]


def test_a_whole_dataset_has_no_problems(whole):
    assert problems(whole) == []
    read_all(whole)
    read_in_order(whole)


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("damages", [flips, cuts])
def test_damage_in_any_file_is_found_by_verify_and_by_reading(whole, damages, count):
    for name, raw in contents(whole.path).items():
        path = whole.path / name
        readers = [read_artifact] if name.startswith("total/") else [read_positioned, read_in_order]
        try:
            for damaged in damages(raw, count):
                path.write_bytes(damaged)
                assert problems(whole), f"verify missed damage in {name}"
                for reader in readers:
                    with pytest.raises(ViewkitError):
                        reader(whole)
        finally:
            path.write_bytes(raw)
    assert problems(whole) == []


def test_a_missing_file_is_found(whole):
    for name, raw in contents(whole.path).items():
        path = whole.path / name
        path.unlink()
        try:
            if name == "total/receipt.json":  # without it the artifact is one that was never finished
                assert [each.subject for each in verify(Dataset(whole.path)) if "unfinished" in each.subject] == [
                    "total: unfinished"
                ]
            else:
                assert problems(whole), name
            with pytest.raises(ViewkitError):
                for part in ("images", "lengths", "total"):
                    Dataset(whole.path).input_digest(part, for_stage="test")
                read_all(whole)
        finally:
            path.write_bytes(raw)


def test_a_file_that_does_not_belong_is_found(whole):
    stray = whole.path / "images" / "000009.tar"
    stray.write_bytes(b"")
    try:
        assert ["does not belong to the column" in problem for problem in problems(whole)] == [True]
    finally:
        stray.unlink()


def rewrite(column, shard, rows):
    """Put other rows into a shard, receipt and all."""
    (column.path / f"{shard:06d}.json").unlink()
    with ShardWriter(column.path, shard, column.identity.digest) as writer:
        for row in rows:
            writer.write(row)
        writer.finish()


def test_keys_that_do_not_agree_between_columns_are_found(tmp_path):
    dataset = numbers_dataset(tmp_path, rows=12, rows_per_shard=6)
    run_stage(LengthsStage(), LengthsConfig(factor=3), dataset, CPU)
    images = dataset.column("images")
    first, *rest = images.rows(0)
    rewrite(images, 0, [Row("other", first.fields), *rest])
    said = "column 'lengths' lacks 1 rows that are not among its rejects (first: other)"
    assert any(said in problem for problem in problems(dataset))


def test_columns_made_from_other_images_of_the_same_names_are_found(tmp_path):
    dataset = numbers_dataset(tmp_path, rows=12, rows_per_shard=6)
    run_stage(LengthsStage(), LengthsConfig(), dataset, CPU)
    images = dataset.column("images")
    rewrite(images, 0, [Row(row.key, {**row.fields, "bin": b"other"}) for row in images.rows(0)])
    assert problems(dataset) == [
        f"{tmp_path / 'lengths'}: it was made from another 'images' than the one that is there now; delete "
        f"{tmp_path / 'lengths'} and rerun 'viewkit lengths' (its --redo deletes it), or bring the old 'images' back"
    ]
    with pytest.raises(DataError, match="made from another 'images'"):
        Dataset(tmp_path).input_digest("lengths", for_stage="test")


def test_a_sealed_receipt_that_leaves_a_row_out_is_found(tmp_path):
    dataset = numbers_dataset(tmp_path, rows=12, rows_per_shard=6)
    receipt = dataset.column("images").receipt(0)
    (tmp_path / "images" / "000000.json").unlink()
    replace(receipt, rows=receipt.rows[1:]).write(tmp_path / "images")
    assert problems(dataset)
    with pytest.raises(DataError, match="its receipts account for 11 of 12 inputs"):
        Dataset(tmp_path).column("images").keys()
