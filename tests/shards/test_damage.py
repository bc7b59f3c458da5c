"""Any single flipped bit and any cut, in any file of a dataset, is found by `verify` and by reading."""

import random

import pytest
from small_datasets import CPU, contents, numbers_dataset
from toy_stages import LengthsConfig, LengthsStage, TotalConfig, TotalStage

from viewkit.pipelines.runner import run_stage
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ViewkitError
from viewkit.shards.verify import verify


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


@pytest.mark.parametrize("damages", [flips, cuts])
def test_damage_in_any_file_is_found_by_verify_and_by_reading(whole, damages):
    for name, raw in contents(whole.path).items():
        path = whole.path / name
        readers = [read_artifact] if name.startswith("total/") else [read_positioned, read_in_order]
        try:
            for damaged in damages(raw, 40):
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
            found = problems(whole)
            assert found or name.endswith(("column.json", "artifact.json")), name
            if name != "total/artifact.json":
                with pytest.raises(ViewkitError):
                    read_all(whole)
                    whole.column("images").digest, Dataset(whole.path).column("lengths").digest
        finally:
            path.write_bytes(raw)


def test_a_file_that_does_not_belong_is_found(whole):
    stray = whole.path / "images" / "000009.tar"
    stray.write_bytes(b"")
    try:
        assert ["does not belong to the column" in problem for problem in problems(whole)] == [True]
    finally:
        stray.unlink()


def test_keys_that_do_not_agree_between_columns_are_found(whole, tmp_path):
    other = numbers_dataset(tmp_path / "other", rows=12, rows_per_shard=6)
    run_stage(LengthsStage(), LengthsConfig(factor=3), other, CPU)
    receipt = other.column("lengths").receipts[0]
    folder = tmp_path / "other" / "images"
    images = other.column("images")
    from viewkit.shards.writer import ShardWriter

    with ShardWriter(folder, 0, images.identity.digest) as writer:
        for row in list(images.rows(0))[1:]:
            writer.write(row)
        writer.finish()
    found = [finding.problem for finding in verify(Dataset(other.path)) if finding.problem]
    assert len(found) == 1
    assert "column 'lengths' holds 1 rows that 'images' does not (first: row00000)" in found[0]
    assert receipt.rows[0].key == "row00000"
