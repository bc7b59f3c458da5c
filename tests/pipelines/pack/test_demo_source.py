"""The bundled photographs: enough of them, enough tiles, and not a pixel shared between the splits."""

import numpy as np
import pytest

from viewkit.pipelines.pack import demo
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.demo import MAX_TILES, PHOTOGRAPHS, SIDE_PX, list_tiles, photograph
from viewkit.pipelines.pack.raw import LABEL
from viewkit.pipelines.pack.source import open_source
from viewkit.pipelines.pack.stage import pack_row
from viewkit.shards.codecs import decode_image, decode_json
from viewkit.shards.errors import ConfigError, DataError
from viewkit.shards.row import Row


def rows(source: str) -> list[Row]:
    found = open_source(source, PackConfig())
    raw = [row for shard in range(found.num_shards) for row in found.rows(shard)]
    assert [row.key for row in raw] == [key for shard in range(found.num_shards) for key in found.keys(shard)]
    return [row for row in raw if isinstance(row, Row)]


def test_there_are_enough_photographs_and_tiles() -> None:
    train, test = open_source("demo:train", PackConfig()), open_source("demo:test", PackConfig())
    assert len(PHOTOGRAPHS) >= 12 and len(set(PHOTOGRAPHS.values())) == len(PHOTOGRAPHS)
    assert train.num_rows >= 1500 and test.num_rows >= 300
    for name in PHOTOGRAPHS:
        assert 60 <= len(list_tiles(name, "train")) <= MAX_TILES["train"]
        assert 10 <= len(list_tiles(name, "test")) <= MAX_TILES["test"]
    assert train.digest != test.digest and open_source("demo:", PackConfig()).digest == train.digest


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_no_training_tile_overlaps_a_test_tile(name: str) -> None:
    seen = np.zeros(photograph(name).shape[:2], bool)
    for _, top, left in list_tiles(name, "train"):
        assert seen[top : top + SIDE_PX, left : left + SIDE_PX].shape == (SIDE_PX, SIDE_PX)
        seen[top : top + SIDE_PX, left : left + SIDE_PX] = True
    for _, top, left in list_tiles(name, "test"):
        assert not seen[top : top + SIDE_PX, left : left + SIDE_PX].any()
        assert seen[top : top + SIDE_PX, left : left + SIDE_PX].shape == (SIDE_PX, SIDE_PX)


def test_tiles_are_the_photographs_pixels() -> None:
    raw = rows("demo:test")
    assert len({row.key for row in raw}) == len(raw)
    assert {int(row.fields["cls"]) for row in raw} == set(range(len(PHOTOGRAPHS)))
    for one in raw[:20]:
        row = pack_row(one, PackConfig())
        assert isinstance(row, Row) and row.fields["png"] == one.fields["png"]
        facts = decode_json(row.fields["json"])
        top, left, height, width = facts["metadata"]["box_px"]
        assert row.key == f"{facts['label']}_{top:04d}_{left:04d}" and facts["done"] == []
        assert list(PHOTOGRAPHS)[int(row.fields["cls"])] == facts["label"] == one.fields[LABEL].decode()
        expected = photograph(facts["label"])[top : top + height, left : left + width]
        np.testing.assert_array_equal(decode_image(row.fields), expected)


def test_other_splits_are_refused() -> None:
    with pytest.raises(ConfigError, match="'demo:val' has no such split"):
        open_source("demo:val", PackConfig())


def test_a_missing_photograph_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(demo.PHOTOGRAPHS, "absent", "absent.png")
    with pytest.raises(DataError, match=r"photograph 'absent.png' cannot be read"):
        demo.photograph_bytes("absent")
