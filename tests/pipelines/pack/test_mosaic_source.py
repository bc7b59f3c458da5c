"""Mosaics: every quadrant is its part, boxes and gaps are where KEY.json says, and which parts meet is known."""

import io
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import webdataset
from PIL import Image
from small_datasets import CPU, contents

from viewkit.cli.main import run
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack import source as source_module
from viewkit.pipelines.pack.composition import NO_CLASS, Composition
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.mosaic import fit
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage, pack_row
from viewkit.pipelines.pairs.objects import read_annotation
from viewkit.shards.codecs import decode_image, decode_json, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.row import Reject, Row

SIDE = 20
CONFIG = PackConfig(labels="folders", rows_per_shard=3, mosaics=7)


def noise(number: int, height: int = SIDE, width: int = SIDE) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return encode_png(pixels)


def class_folders(root: Path, classes: int = 5, each: int = 4) -> Path:
    for label in range(classes):
        (root / f"class{label}").mkdir(parents=True)
        for number in range(each):
            (root / f"class{label}" / f"{number}.png").write_bytes(noise(10 * label + number))
    return root


def packed(source: str, config: PackConfig) -> list[Row | Reject]:
    found = open_source(source, config)
    raw = [row for shard in range(found.num_shards) for row in found.rows(shard)]
    assert [row.key for row in raw] == [key for shard in range(found.num_shards) for key in found.keys(shard)]
    assert len(raw) == found.num_rows
    return [row if isinstance(row, Reject) else pack_row(row, config) for row in raw]


def rows(source: str, config: PackConfig) -> list[Row]:
    return [row for row in packed(source, config) if isinstance(row, Row)]


def objects(row: Row) -> list[dict]:
    return decode_json(row.fields["json"])["metadata"]["objects"]


def classes(row: Row) -> list[str]:
    return [each["category"] for each in objects(row)]


@pytest.mark.parametrize(("grid", "gap"), [("2x2", 0), ("1x2", 3), ("2x1", 5), ("2x2", 4)])
def test_every_part_is_where_its_box_says_and_the_rest_is_black(grid: str, gap: int, tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in")
    down, across = map(int, grid.split("x"))
    found = rows(f"mosaic:{folder}", replace(CONFIG, grid=grid, gap=gap))
    assert [row.key for row in found] == [f"mosaic-{number:06d}" for number in range(7)]
    for row in found:
        pixels = decode_image(row.fields).copy()
        height, width = down * SIDE + (down - 1) * gap, across * SIDE + (across - 1) * gap
        assert pixels.shape == (height, width, 3) and set(row.fields) == {"png", "json"}
        listed = objects(row)
        assert [each["bbox"][:2] for each in listed] == [
            [x * (SIDE + gap), y * (SIDE + gap)] for y in range(down) for x in range(across)
        ]
        for each in listed:
            left, top, wide, high = each["bbox"]
            part = pixels[top : top + high, left : left + wide]
            assert np.array_equal(part, decode_image({"png": (folder / each["source"]).read_bytes()}))
            assert each["source"].startswith(f"{each['category']}/") and each["category"] == f"class{each['cls']}"
            part[:] = 0
        assert not pixels.any()
        assert len({each["source"] for each in listed}) == len(set(classes(row))) == down * across
        annotation = read_annotation(row.fields, (height, width), "here")
        assert annotation.boxes.tolist() == [[t, x, SIDE, SIDE] for x, t, _, _ in (each["bbox"] for each in listed)]


@pytest.mark.parametrize("share", [0, 0.29, 0.5, 1])
def test_the_share_of_one_class_is_exact_and_all_others_differ(share: float) -> None:
    labels = np.repeat(np.arange(6), [4, 4, 9, 30, 3, 5])
    labels = np.append(labels, [NO_CLASS] * 3)
    drawn = Composition(labels, num_parts=4, same_class=share, seed=3)
    met: Counter[int] = Counter()
    of_one = 0
    for number in range(600):
        parts = drawn.parts(number)
        found = labels[parts]
        assert len(set(parts)) == 4 and NO_CLASS not in found
        assert len(set(found)) == (1 if drawn.is_of_one_class(number) else 4)
        of_one += drawn.is_of_one_class(number)
        met.update(found.tolist())
        if number == 99:
            assert of_one == round(100 * share)
    assert of_one == round(600 * share)
    expected = {4: 0.0 if share == 1 else 400 * (1 - share)}  # three images: never a mosaic of its own
    for label in range(6):
        mean = 400 * (1 - share) + 480 * share * (label != 4)
        assert abs(met[label] - expected.get(label, mean)) < 5 * mean**0.5 + 1


def test_mosaics_depend_on_seed_and_number_alone() -> None:
    labels = np.arange(50) % 7
    one, other = (Composition(labels, num_parts=2, same_class=0.5, seed=seed) for seed in (0, 1))
    backwards = [one.parts(number) for number in reversed(range(40))][::-1]
    assert backwards == [one.parts(number) for number in range(40)]
    assert sum(one.parts(number) == other.parts(number) for number in range(40)) < 5


def test_without_labels_parts_are_any_different_images(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in", classes=1, each=5)
    config = replace(CONFIG, labels="none")
    assert any("no labels" in note for note in open_source(f"mosaic:{folder}", config).notes)
    for row in rows(f"mosaic:{folder}", config):
        assert len(set(classes(row))) == 4 and classes(row) == [each["key"] for each in objects(row)]


def test_class_files_only_where_every_mosaic_has_one_class(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in")
    assert all("cls" not in row.fields for row in rows(f"mosaic:{folder}", replace(CONFIG, same_class=0.9)))
    for row in rows(f"mosaic:{folder}", replace(CONFIG, same_class=1.0)):
        assert {f"class{int(row.fields['cls'])}"} == set(classes(row))
        assert decode_json(row.fields["json"])["label"] == classes(row)[0]


def test_folder_tars_and_packed_dataset_give_the_same_pictures(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in")
    run_stage(PackStage(str(folder)), PackConfig(labels="folders", rows_per_shard=6), Dataset(tmp_path / "set"), CPU)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for label in range(5):
            for number in range(4):
                for name, data in (("png", noise(10 * label + number)), ("cls", b"%d\n" % label)):
                    member = tarfile.TarInfo(f"{label}-{number}.{name}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    known = {
        decode_image({"png": noise(10 * label + number)}).tobytes(): label for label in range(5) for number in range(4)
    }
    config = replace(CONFIG, labels="none")
    first = rows(f"mosaic:{folder}", CONFIG)
    second = rows(f"mosaic:{tmp_path / 'set'}", config)
    assert [row.fields["png"] for row in first] == [row.fields["png"] for row in second]
    assert [classes(row) for row in first] == [classes(row) for row in second]
    for row in rows(f"mosaic:{tmp_path / 'a.tar'}", config):
        pixels = decode_image(row.fields)
        for each in objects(row):
            left, top, _, _ = each["bbox"]
            label = known[np.ascontiguousarray(pixels[top : top + SIDE, left : left + SIDE]).tobytes()]
            assert each["category"] == str(label) == str(each["cls"])


def test_parts_of_other_shapes_are_cut_centrally_and_resized(tmp_path: Path) -> None:
    pixels = decode_image({"png": noise(0, 24, 40)})
    assert np.array_equal(fit(pixels, 24), pixels[:, 8:32])
    expected = Image.fromarray(pixels[:, 8:32]).resize((16, 16), Image.Resampling.BICUBIC)
    assert np.array_equal(fit(pixels, 16), np.asarray(expected))
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[:, ::2] = 255
    assert np.ptp(fit(stripes, 8)[:, 1:-1]) <= 4  # antialiased: no stripe is left
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(noise(number, 24, 40))
    config = PackConfig(mosaics=2)
    with pytest.raises(ConfigError, match=r"not squares of one side, e\.g\. 24 x 40 px .* --part-px"):
        open_source(f"mosaic:{tmp_path}", config)
    row = rows(f"mosaic:{tmp_path}", replace(config, part_px=24))[0]
    for each in objects(row):
        left, top, _, _ = each["bbox"]
        own = decode_image({"png": (tmp_path / each["source"]).read_bytes()})[:, 8:32]
        assert np.array_equal(decode_image(row.fields)[top : top + 24, left : left + 24], own)


def test_a_part_that_pack_rejects_rejects_its_mosaics(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "in")
    (folder / "class1" / "2.png").write_bytes(noise(12)[:300])
    found = packed(f"mosaic:{folder}", replace(CONFIG, mosaics=40))
    composed = Composition(np.repeat(np.arange(5), 4), num_parts=4, same_class=0, seed=0)
    rejects = [row for row in found if isinstance(row, Reject)]
    assert 0 < len(rejects) < 20 and {row.reason for row in rejects} == {"truncated"}
    assert all(row.detail.startswith("its part class1/2.png: ") for row in rejects)
    assert len({tuple(composed.parts(number)) for number in range(40)}) > 30
    kept = [each["source"] for row in found if isinstance(row, Row) for each in objects(row)]
    assert "class1/2.png" not in kept and "class1/1.png" in kept


def test_the_same_bytes_with_two_workers_after_a_stop_and_for_plain_webdataset(tmp_path: Path) -> None:
    source = f"mosaic:{class_folders(tmp_path / 'in')}"
    one, two = Dataset(tmp_path / "one"), Dataset(tmp_path / "two")
    run_stage(PackStage(source), CONFIG, one, CPU)
    before = contents(one.path)
    run_stage(PackStage(source), CONFIG, two, replace(CPU, workers=2))
    assert contents(two.path) == before
    (one.path / "images" / "000001.json").unlink()
    run_stage(PackStage(source), CONFIG, one, CPU)
    assert contents(one.path) == before
    tars = [str(path) for path in sorted((one.path / "images").glob("*.tar"))]
    samples = list(webdataset.WebDataset(tars, shardshuffle=False).decode("rgb8"))
    assert [sample["__key__"] for sample in samples] == [f"mosaic-{number:06d}" for number in range(7)]
    column = one.column("images")
    for index, sample in enumerate(samples):
        assert np.array_equal(sample["png"], decode_image(column.fields(index)))
        assert len(sample["json"]["metadata"]["objects"]) == 4
    for other in (replace(CONFIG, gap=1), replace(CONFIG, grid="1x2"), replace(CONFIG, mosaic_seed=1)):
        with pytest.raises(RefusedError, match=r"with other settings: 'mosaic' is '2x2, gap 0 px"):
            run_stage(PackStage(source), other, one, CPU)
    for other in (replace(CONFIG, part_px=19), replace(CONFIG, mosaics=6)):
        with pytest.raises(RefusedError, match="--part-px or --mosaics is another"):
            run_stage(PackStage(source), other, one, CPU)
    run_stage(PackStage(source), replace(CONFIG, gap=0, grid="2x2", same_class=0.0, part_px=SIDE), one, CPU)


def test_what_cannot_be_a_mosaic_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = class_folders(tmp_path / "in", classes=3, each=3)
    (folder / "loose.png").write_bytes(noise(99))
    source = f"mosaic:{folder}"
    unlabelled = replace(CONFIG, labels="none", same_class=0.5)
    one = tmp_path / "one"
    one.mkdir()
    (one / "only.png").write_bytes(noise(1))
    cases: list[tuple[str, PackConfig, type[Exception], str]] = [
        (source, CONFIG, DataError, "of 4 parts of different classes needs as many classes; the source has 3"),
        (source, replace(CONFIG, same_class=1.0), DataError, "no class has 4 images; the largest has 3"),
        (source, unlabelled, DataError, "same_class is 0.5 and the source has no labels; use --labels folders"),
        (f"mosaic:{one}", PackConfig(grid="1x2"), DataError, "of 2 parts needs as many different images; .* has 1"),
        (f"mosaic:mosaic:{folder}", CONFIG, ConfigError, "is a mosaic of mosaics"),
        (source, replace(CONFIG, grid="1x2", max_pixels=700), ConfigError, "mosaics of 20 x 40 px are not within"),
        (str(folder), CONFIG, ConfigError, "--mosaics is for mosaic:SOURCE alone"),
        (f"mosaic:{tmp_path / 'nowhere'}", PackConfig(), DataError, "does not exist"),
        ("mosaic:", PackConfig(), ConfigError, "the source is empty"),
    ]
    for name, config, kind, message in cases:
        with pytest.raises(kind, match=message):
            open_source(name, config)
    notes = open_source(source, replace(CONFIG, grid="1x2")).notes
    assert notes == ("1 images of the source have no class and take no part in mosaics",)
    monkeypatch.setitem(source_module.SCHEMES, "plain", f"{__name__}:open_plain")
    with pytest.raises(ConfigError, match="the images of 'plain:x' cannot be read one by one"):
        open_source("mosaic:plain:x", PackConfig())
    for values in ({"gap": -1}, {"part_px": 0}, {"same_class": 1.1}, {"mosaics": 0}):
        with pytest.raises(ConfigError, match=f"pack: {next(iter(values))} is"):
            PackConfig(**values)  # type: ignore[arg-type]


class Plain:
    num_shards, num_rows, notes, digest = 1, 1, (), "0"

    def keys(self, shard: int) -> list[str]:
        return ["a"]

    def rows(self, shard: int) -> list[Row]:
        return []


def open_plain(rest: str, config: PackConfig) -> Plain:
    return Plain()


def test_options_of_mosaics_are_refused_elsewhere_on_the_command_line(tmp_path, capsys) -> None:
    assert run(["pack", "demo:test", str(tmp_path / "out"), "--same-class", "0.5"]) == 2
    assert capsys.readouterr().err == (
        "error: pack: --same-class is for mosaic:SOURCE alone; the source is 'demo:test'\n"
    )
    assert run(["pack", "mosaic:demo:test", str(tmp_path / "out"), "--mosaics", "3", "--workers", "1"]) == 0
    found = [Dataset(tmp_path / "out").column("images").fields(index) for index in range(3)]
    assert all(decode_image(fields).shape == (128, 128, 3) for fields in found)
    assert all(len({each["category"] for each in objects(Row("", fields))}) == 4 for fields in found)
