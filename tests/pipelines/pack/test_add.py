"""`pack --add`: new images become new shards, the others keep theirs to the byte; later stages do only the new ones."""

import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torchvision_layouts as layouts
from small_datasets import CPU, contents
from sources import encoded
from toy_stages import LengthsConfig, LengthsStage, TotalConfig, TotalStage

from viewkit.cli.main import run
from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.redo import replaced_by
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.pack.added import open_added
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.codecs import decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, MissingError, RefusedError
from viewkit.shards.loader import Loader
from viewkit.shards.row import Reject, Row
from viewkit.shards.verify import verify

CONFIG = PackConfig(rows_per_shard=4)
ADD = replace(CONFIG, add=True)


class SizesStage(LengthsStage):
    """Lengths of images' bytes."""

    def prepare(self, config, run):
        transform = super().prepare(config, run)
        return lambda rows: transform(Row(row.key, {"bin": row.fields["png"]}) for row in rows)


class AllStage(TotalStage):
    """How many images there are."""

    def fit(self, config, run):
        (run.folder / "total.txt").write_text(str(run.dataset.column("images").num_rows))
        (run.folder / "metrics.jsonl").write_text("")
        return {}


def write(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(sum(name.encode())))
    return root


def pack(source: Path | str, out: Path, config: PackConfig = CONFIG) -> Dataset:
    run_stage(PackStage(str(source)), config, Dataset(out), CPU)
    return Dataset(out)


def problems(dataset: Dataset) -> list[str]:
    return [each.problem for each in verify(dataset) if each.problem]


def shards(dataset: Dataset, column: str = "images") -> dict[str, bytes]:
    return {name: data for name, data in contents(dataset.path / column).items() if name != "column.json"}


def classes(dataset: Dataset) -> dict[str, set[bytes]]:
    column = dataset.column("images")
    found: dict[str, set[bytes]] = {}
    for i in range(column.num_rows):
        fields = column.fields(i)
        found.setdefault(decode_json(fields["json"])["label"], set()).add(fields["cls"])
    return found


def test_new_images_become_new_shards_and_the_others_stay_to_the_byte(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(10)])
    (source / "broken.png").write_bytes(b"x")
    before = shards(pack(source, tmp_path / "out"))
    write(source, *[f"new{i}.png" for i in range(6)])
    dataset = pack(source, tmp_path / "out", ADD)
    column = dataset.column("images")
    assert (column.num_shards, column.num_rows) == (5, 16) and not problems(dataset)
    assert {name: data for name, data in shards(dataset).items() if name in before} == before
    keys = column.keys()
    assert all(key.startswith("new") for key in keys[10:]) and len(set(keys)) == 16
    done = contents(dataset.path)
    for config in (ADD, CONFIG):  # --add is only needed where there is something new
        assert contents(pack(source, tmp_path / "out", config).path) == done


@pytest.mark.slow
def test_a_column_grows_as_often_as_its_source(tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    for step in range(4):
        write(source, *[f"{step}{i}.png" for i in range(5)])
        dataset = pack(source, out, ADD)
        assert dataset.column("images").num_rows == 5 * (step + 1) and not problems(dataset)
    assert [each.plan["shards"] for each in dataset.identity("images").earlier] == [2, 4, 6]
    assert len(dataset.column("images").earlier) == 3


def slow(*value):
    return pytest.param(list(value), marks=pytest.mark.slow)


LOST = [["3.json", "4.json"], slow("4.json"), slow("1.json"), slow("0.json", "2.json")]


@pytest.mark.parametrize("lost", LOST)
def test_what_was_cut_short_or_deleted_is_written_as_it_was(lost, tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(10)])
    pack(source, tmp_path / "out")
    write(source, *[f"new{i}.png" for i in range(6)])
    done = contents(pack(source, tmp_path / "out", ADD).path)
    for name in lost:
        (tmp_path / "out" / "images" / name.rjust(11, "0")).unlink()
    assert contents(pack(source, tmp_path / "out").path) == done


@pytest.mark.slow
def test_shards_of_two_additions_that_are_gone_are_one_line(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(10)])
    pack(source, tmp_path / "out")
    write(source, "new.png")
    pack(source, tmp_path / "out", ADD)
    for name in ("000000.json", "000003.json"):
        (tmp_path / "out" / "images" / name).unlink()
    with pytest.raises(DataError, match="shards of several additions are missing"):
        pack(source, tmp_path / "out")


def test_classes_keep_their_numbers_and_new_ones_follow(tmp_path):
    source = write(tmp_path / "in", *[f"{name}/{i}.png" for name in ("bee", "dog") for i in range(3)])
    config = replace(CONFIG, labels="folders")
    pack(source, tmp_path / "out", config)
    write(source, "ant/1.png", "cat/1.png", "bee/9.png")
    pack(source, tmp_path / "out", replace(config, add=True))
    write(source, "ape/1.png", "cat/2.png")
    dataset = pack(source, tmp_path / "out", replace(config, add=True))
    numbers = {"bee": {b"0"}, "dog": {b"1"}, "ant": {b"2"}, "cat": {b"3"}, "ape": {b"4"}}
    assert classes(dataset) == numbers
    (dataset.path / "images" / "000002.json").unlink()
    assert classes(pack(source, tmp_path / "out", config)) == numbers


def zipped(path: Path, *names: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, encoded(sum(name.encode())))


def test_a_zip_file_that_would_change_the_classes_of_before_is_refused(tmp_path):
    """The folders that all images share are no classes: with the second file, `part1` and `part2` would be."""
    config = replace(CONFIG, labels="folders")
    for number in (1, 2):
        zipped(tmp_path / "in" / f"{number}.zip", *[f"part{number}/{name}/{number}.png" for name in ("cat", "dog")])
        if number == 1:
            before = contents(pack(tmp_path / "in", tmp_path / "out", config).path)
    with pytest.raises(RefusedError, match=r"was packed as class \d '(cat|dog)', and with .* be class 0 'part1'; put"):
        pack(tmp_path / "in", tmp_path / "out", replace(config, add=True))
    assert contents(tmp_path / "out") == before
    zipped(tmp_path / "in" / "2.zip", *[f"part1/{name}/2.png" for name in ("cat", "ape")])
    dataset = pack(tmp_path / "in", tmp_path / "out", replace(config, add=True))
    assert classes(dataset) == {"cat": {b"0"}, "dog": {b"1"}, "ape": {b"2"}}


def test_a_class_of_before_that_has_the_name_of_a_shared_folder_hides_no_change(tmp_path):
    config = replace(CONFIG, labels="folders")
    zipped(tmp_path / "in" / "1.zip", *[f"a/a/{i}.png" for i in range(9)], "a/b/9.png")
    pack(tmp_path / "in", tmp_path / "out", config)
    zipped(tmp_path / "in" / "2.zip", "c/a/1.png", "c/b/2.png")
    with pytest.raises(RefusedError, match=r"was packed as class 1 'b', and with .* would be class 0 'a'; put"):
        pack(tmp_path / "in", tmp_path / "out", replace(config, add=True))


def test_classes_that_a_parquet_file_numbers_anew_are_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def export(names: list[str], *labels: str) -> None:
        numbers = [names.index(label) if label else -1 for label in labels]
        table = pa.table({"image": [encoded(i) for i in range(len(labels))], "label": numbers})
        features = {"label": {"names": names, "_type": "ClassLabel"}}
        told = {"huggingface": json.dumps({"info": {"features": features}})}
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(table.replace_schema_metadata(told), tmp_path / "in" / "a.parquet")

    export(["ant", "cat"], *["ant"] * 20, "cat", "")
    before = contents(pack(tmp_path / "in", tmp_path / "out").path)
    export(["ant", "bee", "cat"], *["ant"] * 20, "cat", "", "bee")
    with pytest.raises(RefusedError, match=r"was packed as class 1 'cat', and with .* be class 2 'cat'; .* in parquet"):
        pack(tmp_path / "in", tmp_path / "out", ADD)
    assert contents(tmp_path / "out") == before
    export(["ant", "cat", "bee"], *["ant"] * 20, "cat", "", "bee")
    images = pack(tmp_path / "in", tmp_path / "out", ADD).column("images")
    rows = [images.fields(i) for i in range(images.num_rows) if "cls" in images.fields(i)]
    assert {decode_json(row["json"])["label"]: row["cls"] for row in rows} == {"ant": b"0", "cat": b"1", "bee": b"2"}


def archives(root: Path, kind: str, number: int) -> None:
    root.mkdir(exist_ok=True)
    images = {f"{number}{i}.png": encoded(10 * number + i) for i in range(3)}
    if kind == "zip":
        with zipfile.ZipFile(root / f"{number}.zip", "w") as archive:
            for name, data in images.items():
                archive.writestr(name, data)
    elif kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pa.table({"image": list(images.values()), "label": [f"class{9 - number}"] * 3})
        pq.write_table(table, root / f"{number}.parquet")
    else:
        with tarfile.open(root / f"{number}.{kind}", "w:gz" if kind == "tar.gz" else "w") as tar:
            for name in images:
                write(root.parent / "files", name)
                tar.add(root.parent / "files" / name, name)


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "zip", "parquet"])
def test_new_archives_beside_the_old_ones_are_new_images(kind, tmp_path):
    archives(tmp_path / "in", kind, 1)
    archives(tmp_path / "in", kind, 2)
    before = shards(pack(tmp_path / "in", tmp_path / "out"))
    archives(tmp_path / "in", kind, 0)
    dataset = pack(tmp_path / "in", tmp_path / "out", ADD)
    assert {name: data for name, data in shards(dataset).items() if name in before} == before
    assert dataset.column("images").num_rows == 9 and not problems(dataset)
    if kind == "parquet":  # classes by name: those of before first
        assert classes(dataset) == {"class7": {b"0"}, "class8": {b"1"}, "class9": {b"2"}}


def test_later_stages_do_only_the_new_ones(tmp_path, capsys):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(10)])
    dataset = pack(source, tmp_path / "out")
    run_stage(SizesStage(), LengthsConfig(), dataset, CPU)
    before = shards(dataset, "lengths")
    write(source, *[f"new{i}.png" for i in range(6)])
    dataset = pack(source, tmp_path / "out", ADD)
    assert not problems(Dataset(tmp_path / "out"))[1:] and dataset.staleness("lengths") is None
    assert run(["status", str(dataset.path)]) == 0
    assert "lacks what was added to 'images'" in capsys.readouterr().out
    with pytest.raises(MissingError, match="lacks the images that were added to 'images'"):
        Loader(dataset, ["images", "lengths"], batch_size=2, seed=0, transform=lambda row: row.key)
    plan = plan_stage(SizesStage(), LengthsConfig(), dataset, CPU)
    assert (plan["shards"], plan["shards_left"], plan["rows_left"]) == (5, 2, 6)
    summary = run_stage(SizesStage(), LengthsConfig(), dataset, CPU)
    assert summary.written == 2 and not problems(dataset)
    after = shards(dataset, "lengths")
    assert {name: data for name, data in after.items() if name in before} == before
    assert Loader(dataset, ["images", "lengths"], batch_size=2, seed=0, transform=lambda row: row.key).num_rows == 16
    whole = contents(dataset.path)
    run_stage(SizesStage(), LengthsConfig(), dataset, CPU)
    (dataset.path / "lengths" / "000001.json").unlink()
    run_stage(SizesStage(), LengthsConfig(), Dataset(dataset.path), CPU)
    assert contents(dataset.path) == whole


def test_what_was_fitted_stays_valid_until_it_is_asked_for_anew(tmp_path, capsys):
    class Told(Silent):
        def __init__(self):
            self.lines = []

        def message(self, text):
            self.lines.append(text)

    source = write(tmp_path / "in", *[f"{i}.png" for i in range(10)])
    dataset = pack(source, tmp_path / "out")
    run_stage(AllStage(), TotalConfig(), dataset, CPU)
    write(source, "new.png")
    dataset, told = pack(source, tmp_path / "out", ADD), Told()
    assert run_stage(AllStage(), TotalConfig(), dataset, CPU, told).written == 0
    assert any(
        "was made before images were added to 'images', and stays as it is; --redo" in line for line in told.lines
    )
    assert dataset.artifact("total").path("total.txt").read_text() == "10" and not problems(dataset)
    assert plan_stage(AllStage(), TotalConfig(), dataset, CPU)["done"] is True
    assert run(["status", str(dataset.path)]) == 0
    assert "complete, of before 'images' grew" in capsys.readouterr().out
    assert replaced_by(AllStage(), TotalConfig(), dataset, CPU) == ["total"]


@pytest.mark.slow
def test_a_stage_that_was_cut_short_before_the_source_grew_goes_on(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(10)])
    dataset = pack(source, tmp_path / "out")
    run_stage(SizesStage(), LengthsConfig(), dataset, CPU)
    whole = shards(dataset, "lengths")
    (dataset.path / "lengths" / "000002.json").unlink()
    write(source, "new.png")
    dataset = pack(source, tmp_path / "out", ADD)
    assert run_stage(SizesStage(), LengthsConfig(), dataset, CPU).written == 2
    assert {name: data for name, data in shards(dataset, "lengths").items() if name in whole} == whole
    assert not problems(dataset)


def test_what_is_not_a_grown_source_is_refused(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(6)])
    pack(source, tmp_path / "out")
    before = contents(tmp_path / "out")
    write(source, "new.png")
    with pytest.raises(RefusedError, match="--add where the source has only got new files"):
        pack(source, tmp_path / "out")
    with pytest.raises(RefusedError, match="min_side_px is 16 there and 8 now"):
        pack(source, tmp_path / "out", replace(ADD, min_side_px=8))
    (source / "new.png").unlink()
    (source / "0.png").write_bytes(encoded(99, size=(30, 30)))
    with pytest.raises(RefusedError, match="has no new images, but files of it have another size"):
        pack(source, tmp_path / "out", ADD)
    (source / "0.png").rename(source / "renamed.png")
    with pytest.raises(RefusedError, match=r"0_.* was packed before and is not in the source any more"):
        pack(source, tmp_path / "out", ADD)
    assert contents(tmp_path / "out") == before


def test_an_unfinished_column_does_not_grow(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(6)])
    pack(source, tmp_path / "out")
    (tmp_path / "out" / "images" / "000001.json").unlink()
    write(source, "new.png")
    with pytest.raises(RefusedError, match="lacks shard 000001 of what was to be packed before"):
        pack(source, tmp_path / "out", ADD)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_addition_that_fails_on_rejects_leaves_what_was_whole(workers, tmp_path):
    def strictly(stage: PackStage, config: PackConfig) -> None:
        run_stage(stage, config, Dataset(tmp_path / "out"), replace(CPU, max_rejects=0.01, workers=workers))

    source = write(tmp_path / "in", *[f"{i}.png" for i in range(4)])
    before = contents(pack(source, tmp_path / "out").path)
    write(source, "good.png", *[f"more{i}.png" for i in range(8)])
    (source / "bad.png").write_bytes(b"x")
    said = (
        r"1 of 14 rows rejected \(not_an_image 1\).* such as bad.png: .*images is as it was before; correct the source"
    )
    with pytest.raises(DataError, match=said):
        strictly(PackStage(str(source)), ADD)
    assert contents(tmp_path / "out") == before and not problems(Dataset(tmp_path / "out"))
    (source / "bad.png").rename(tmp_path / "bad.png")
    strictly(PackStage(str(source)), ADD)
    grown = contents(tmp_path / "out")
    strictly(PackStage(str(source)), CONFIG)
    assert contents(tmp_path / "out") == grown and Dataset(tmp_path / "out").column("images").num_rows == 13
    (tmp_path / "bad.png").rename(source / "bad.png")
    with pytest.raises(DataError, match="1 of 14 rows rejected"):
        strictly(PackStage(str(source)), ADD)
    assert contents(tmp_path / "out") == grown  # with its own addition from before


def test_what_an_earlier_run_added_is_never_taken_back(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(4)])
    pack(source, tmp_path / "out")
    write(source, "good.png")
    (source / "bad.png").write_bytes(b"x")
    added = contents(pack(source, tmp_path / "out", ADD).path)
    with pytest.raises(DataError, match=r"1 of 6 rows rejected .*--rejects' lists them; correct the source"):
        run_stage(PackStage(str(source)), ADD, Dataset(tmp_path / "out"), replace(CPU, max_rejects=0.01))
    assert contents(tmp_path / "out") == added


def test_a_part_of_an_addition_that_fails_on_rejects_leaves_the_others_theirs(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(4)])
    pack(source, tmp_path / "out")
    (source / "bad.png").write_bytes(b"x")
    with pytest.raises(DataError, match="what was added stays, as others may be at work on it"):
        run_stage(PackStage(str(source)), ADD, Dataset(tmp_path / "out"), replace(CPU, max_rejects=0.01, part="1/2"))
    assert (tmp_path / "out" / "images" / "000001.json").is_file()


def test_later_stages_keep_what_they_did_when_they_fail_on_rejects(tmp_path):
    """Their rows cost more, and nothing but --max-rejects can make them finish."""

    class Rejecting(SizesStage):
        def prepare(self, config, run):
            return lambda rows: (Reject(row.key, "undecodable", "x") for row in rows)

    source = write(tmp_path / "in", *[f"{i}.png" for i in range(4)])
    run_stage(SizesStage(), LengthsConfig(), pack(source, tmp_path / "out"), CPU)
    write(source, "new.png")
    dataset = pack(source, tmp_path / "out", ADD)
    with pytest.raises(DataError, match="1 of 5 rows rejected"):
        run_stage(Rejecting(), LengthsConfig(), dataset, replace(CPU, max_rejects=0.01))
    assert (dataset.path / "lengths" / "000001.json").is_file()


def test_sources_that_cannot_grow_say_so(tmp_path):
    layouts.food(tmp_path / "root")
    pack(f"torchvision:food101:test:{tmp_path / 'root'}", tmp_path / "out", PackConfig())
    with pytest.raises(ConfigError, match="--add is for folders, tars, zip and parquet files"):
        pack(f"torchvision:food101:train:{tmp_path / 'root'}", tmp_path / "out", PackConfig(add=True))


@pytest.mark.slow
def test_a_forged_history_is_damage(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(6)])
    pack(source, tmp_path / "out")
    write(source, "new.png")
    pack(source, tmp_path / "out", ADD)
    path = tmp_path / "out" / "images" / "column.json"
    path.write_text(path.read_text().replace('"shards":2', '"shards":1'))
    with pytest.raises(DataError, match="damaged"):
        Dataset(tmp_path / "out").column("images").digest  # noqa: B018


@pytest.mark.slow
def test_two_processes_and_two_parts_add_the_same_bytes(tmp_path):
    source = write(tmp_path / "in", *[f"{i}.png" for i in range(10)])
    for name in ("one", "two", "parts"):
        pack(source, tmp_path / name)
    write(source, *[f"new{i}.png" for i in range(20)])
    pack(source, tmp_path / "one", ADD)
    run_stage(PackStage(str(source)), ADD, Dataset(tmp_path / "two"), replace(CPU, workers=2))
    for part in ("1/2", "0/2"):
        run_stage(PackStage(str(source)), ADD, Dataset(tmp_path / "parts"), replace(CPU, part=part))
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "parts")
    column = Dataset(tmp_path / "one").column("images")
    again = open_added(open_source(str(source), CONFIG), column, 4, adds=False)
    assert [key for shard in range(8) for key in again.keys(shard)] == list(column.keys())
