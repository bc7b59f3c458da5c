"""The whole stage through the runner: odd files beside good ones, nothing lost, the same bytes every time."""

import io
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_datasets import CPU, contents

from viewkit.cli.reference import columns_page
from viewkit.pipelines.engine.rejects import REASONS
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.pixels import ALPHA, PLAIN
from viewkit.pipelines.pack.stage import PackStage
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import RefusedError


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def odd_folder(root: Path) -> Path:
    """Eight usable images and six that are not."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {
        "plain.jpg": encoded(noise, "JPEG"),
        "grey.jpg": encoded(noise.convert("L"), "JPEG"),
        "turned.jpg": encoded(noise, "JPEG", exif=exif),
        "cmyk.jpeg": encoded(noise.convert("CMYK"), "JPEG"),
        "wide/palette.PNG": encoded(noise.quantize(16), "PNG", transparency=2),
        "wide/sixteen.png": encoded(Image.fromarray(np.full((20, 30), 40_000, np.uint16)), "PNG"),
        "wide/<img src=x>.png": encoded(noise, "PNG"),
        "anim.gif": encoded(noise, "GIF", save_all=True, append_images=[noise.rotate(180)]),
        "zero.jpg": b"",
        "text.jpg": b"plain text under an image's name",
        "cut.jpg": encoded(noise, "JPEG")[:1500],
        "cut.png": encoded(noise, "PNG")[:1500],
        "dot.png": encoded(Image.new("RGB", (1, 1)), "PNG"),
        "big.png": encoded(Image.new("RGB", (200, 200)), "PNG"),
    }
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


CONFIG = PackConfig(rows_per_shard=4, max_pixels=10_000)


def pack(source: Path, out: Path) -> Dataset:
    dataset = Dataset(out)
    run_stage(PackStage(str(source)), CONFIG, dataset, CPU)
    return dataset


def test_every_file_is_kept_or_rejected_with_its_reason(tmp_path: Path) -> None:
    dataset = pack(odd_folder(tmp_path / "in"), tmp_path / "out")
    column = dataset.column("images")
    receipts = [column.receipt(shard) for shard in range(column.num_shards)]
    rejects = [reject for receipt in receipts for _, reject in receipt.rejects]
    assert {reject.detail.partition(": ")[0]: reject.reason for reject in rejects} == {
        "zero.jpg": "empty",
        "text.jpg": "not_an_image",
        "cut.jpg": "truncated",
        "cut.png": "truncated",
        "dot.png": "too_small",
        "big.png": "too_many_pixels",
    }
    rows = [row for shard in range(column.num_shards) for row in column.rows(shard)]
    assert len(rows) + len(rejects) == 14 == sum(receipt.seen for receipt in receipts)
    facts = {}
    for row in rows:
        fact = decode_json(row.fields["json"])
        assert decode_image(row.fields).shape == (*fact["size"], 3)
        facts[fact["source"]] = fact["done"]
    assert facts == {
        "plain.jpg": [],
        "grey.jpg": [],
        "turned.jpg": ["exif_orientation"],
        "cmyk.jpeg": ["cmyk"],
        "wide/palette.PNG": ["palette", "alpha"],
        "wide/sixteen.png": ["16_bit"],
        "wide/<img src=x>.png": [],
        "anim.gif": ["first_frame", "palette", "format"],
    }


def test_the_bytes_do_not_depend_on_place_time_or_workers(tmp_path: Path) -> None:
    first = pack(odd_folder(tmp_path / "in"), tmp_path / "out")
    second = Dataset(tmp_path / "again")
    source = odd_folder(tmp_path / "elsewhere" / "photos")
    run_stage(PackStage(str(source)), CONFIG, second, replace(CPU, workers=2))
    assert contents(first.path) == contents(second.path)


def test_a_source_that_has_changed_is_refused(tmp_path: Path) -> None:
    source = odd_folder(tmp_path / "in")
    dataset = pack(source, tmp_path / "out")
    before = contents(dataset.path)
    pack(source, tmp_path / "out")
    (source / "plain.jpg").rename(source / "renamed.jpg")
    with pytest.raises(RefusedError, match="its source has other files now"):
        pack(source, tmp_path / "out")
    assert contents(dataset.path) == before


def test_a_dataset_inside_its_source_does_not_swallow_itself(tmp_path: Path) -> None:
    source = odd_folder(tmp_path / "in")
    for _ in range(2):
        dataset = pack(source, source / "packed")
    assert dataset.column("images").num_rows + 6 == 14


def test_workers_are_not_sent_the_listing_twice(tmp_path: Path) -> None:
    stage = PackStage(str(odd_folder(tmp_path / "in")))
    stage.sources(CONFIG, Dataset(tmp_path / "out"))
    assert len(pickle.dumps(stage)) < 500


def test_the_docs_name_every_reason_and_every_step() -> None:
    reasons = columns_page().partition("## Reject reasons\n")[2]
    for reason, meaning in REASONS.items():
        assert f"| `{reason}` | {meaning} |" in reasons
    page = (Path(__file__).parents[3] / "docs" / "pack.md").read_text()
    assert "columns.md#reject-reasons" in page
    for step in ("first_frame", "exif_orientation", "format", "jpeg_warning", "decoders_differ", "16_bit", "alpha"):
        assert f"`{step}`" in page
    for step in (*PLAIN.values(), *ALPHA.values(), "low_bit_depth"):
        assert f"`{step}`" in page
