"""`pack --short-side-px`: large images are resized once, all others keep their bytes."""

import io

import numpy as np
import pytest
from PIL import Image
from small_datasets import CPU
from sources import encoded

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.ingest import Unusable, ingest
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.pairs.objects import read_annotation
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, RefusedError

LIMITS = {"max_pixels": 1 << 22, "min_side_px": 1}


def smooth(height: int, width: int) -> bytes:
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.stack([rows * 255 / height, columns * 255 / width, (rows + columns) % 2 * 0 + 128], axis=2)
    stream = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((200, 300), (100, 150)), ((301, 100), (301, 100)), ((1000, 111), (901, 100)), ((64, 64), (64, 64))],
)
def test_the_shorter_side_becomes_as_long_as_asked_and_the_shape_stays(size, wanted):
    data = smooth(*size)
    taken = ingest(data, short_side_px=100, **LIMITS)
    assert taken.size == wanted and decode_image({taken.extension: taken.data}).shape == (*wanted, 3)
    if wanted == size:
        assert (taken.data, taken.done, taken.resized_from) == (data, (), None)
    else:
        assert (taken.extension, taken.done, taken.resized_from) == ("jpg", ("resized",), size)


def test_the_pixels_are_pillows_bicubic_ones_as_jpeg_of_quality_95():
    data = encoded(3, size=(120, 90))
    with Image.open(io.BytesIO(data)) as image:
        wanted = image.resize((30, 40), Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    wanted.save(stream, "JPEG", quality=95, subsampling=0)
    assert ingest(data, short_side_px=30, **LIMITS).data == stream.getvalue()


def test_an_image_is_turned_before_it_is_resized():
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    Image.open(io.BytesIO(smooth(60, 240))).save(stream, "JPEG", exif=exif)
    taken = ingest(stream.getvalue(), short_side_px=20, **LIMITS)
    assert (taken.size, taken.done, taken.resized_from) == ((80, 20), ("exif_orientation", "resized"), (240, 60))


def test_a_cut_image_is_refused_before_it_is_resized():
    with pytest.raises(Unusable):
        ingest(smooth(200, 300)[:300], short_side_px=100, **LIMITS)


def test_the_side_is_part_of_the_identity_and_without_it_nothing_changes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(encoded(1, size=(40, 60)))
    dataset = Dataset(tmp_path / "data")
    run_stage(PackStage(str(tmp_path / "a")), PackConfig(short_side_px=20), dataset, CPU)
    column = dataset.column("images")
    facts = decode_json(column.fields(0)["json"])
    assert (facts["size"], facts["source_size"], facts["done"]) == ([20, 30], [40, 60], ["resized"])
    with pytest.raises(RefusedError, match="'short_side_px' was used there and is not now"):
        run_stage(PackStage(str(tmp_path / "a")), PackConfig(), Dataset(tmp_path / "data"), CPU)
    run_stage(PackStage(str(tmp_path / "a")), PackConfig(), Dataset(tmp_path / "plain"), CPU)
    assert "short_side_px" not in str(Dataset(tmp_path / "plain").identity("images").content())


def test_boxes_and_masks_of_the_source_follow_the_image():
    mask = np.zeros((40, 80), np.uint8)
    mask[10:20, 40:60] = 1
    stream = io.BytesIO()
    Image.fromarray(mask).save(stream, "PNG")
    facts = {
        "source_size": [40, 80],
        "metadata": {"objects": [{"bbox": [40, 10, 20, 10], "category": "cat", "value": 1}]},
    }
    fields = {"json": __import__("json").dumps(facts).encode()}
    assert read_annotation(fields, (20, 40), "row a").boxes.tolist() == [[5, 20, 5, 10]]
    found = read_annotation({**fields, "mask.png": stream.getvalue()}, (20, 40), "row a").mask
    assert found is not None and np.array_equal(found, mask[1::2, 1::2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"short_side_px": 8}, "short_side_px is 8 and min_side_px 16"),
        ({"short_side_px": 0}, r"short_side_px is 0; it must lie in 1 \.\.\. "),
    ],
)
def test_a_side_that_cannot_be_is_one_line(options, message):
    with pytest.raises(ConfigError, match=message):
        PackConfig(**options)


def test_mosaics_have_an_option_of_their_own():
    with pytest.raises(ConfigError, match="parts of mosaics are resized by --part-px"):
        open_source("mosaic:demo:train", PackConfig(short_side_px=32))
