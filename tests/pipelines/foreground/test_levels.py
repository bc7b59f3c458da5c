"""Noise levels: adaptive, random, and a user's own table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkit.pipelines.foreground.share import LEVELS, adaptive_level
from viewkit.pipelines.generate.levels import LevelTable, sample_level
from viewkit.shards.errors import DataError


@pytest.fixture
def table(tmp_path):
    def read(text):
        path = tmp_path / "levels.csv"
        path.write_bytes(text.encode())
        return LevelTable.read(path)

    return read


def test_levels_of_all_shares_of_256_tokens_follow_the_paper_and_its_cap():
    for k in range(257):
        expected = 400 if k == 256 else 100 * (5 * k // 256)
        assert adaptive_level(k, 256) == expected
    assert [adaptive_level(k, 5) for k in range(6)] == [0, 100, 200, 300, 400, 400]  # 3/5 is level 300


def test_random_levels_are_alike():
    rng = np.random.default_rng(0)
    drawn = [sample_level(rng) for _ in range(5000)]
    counts = [drawn.count(level) for level in LEVELS]
    assert sum(counts) == 5000
    assert min(counts) > 900


PAPER = "share,level\n0,0\n0.2,100\n0.4,200\n0.6,300\n0.8,400\n"


@given(st.integers(1, 400), st.data())
def test_the_papers_table_is_the_adaptive_strategy(total, data):
    count = data.draw(st.integers(0, total))
    shares = [(line.split(",")[0], int(line.split(",")[1])) for line in PAPER.splitlines()[1:]]
    from fractions import Fraction

    table = LevelTable([(Fraction(share), level) for share, level in shares], {}, "")
    assert table.level("any", count, total) == adaptive_level(count, total)


def test_a_table_by_share_is_read_exactly(table):
    levels = table(PAPER)
    assert [levels.level("k", count, 5) for count in range(6)] == [0, 100, 200, 300, 400, 400]
    assert table("\ufeffshare,level\r\n0,400\r\n1/3, 7\r\n\r\n").level("k", 1, 3) == 7


def test_a_table_by_key_gives_each_image_its_own_level(table):
    levels = table('key,level\na,10\n"b,c",999\n')
    assert (levels.level("a", 3, 4), levels.level("b,c", 0, 4)) == (10, 999)
    levels.check_keys(["b,c", "a"])
    with pytest.raises(DataError, match=r"no level for 2 images \(first: x\)"):
        levels.check_keys(["a", "x", "y"])


def test_the_digest_follows_the_content(table):
    assert table(PAPER).digest == table(PAPER).digest
    assert table(PAPER).digest != table(PAPER.replace("100", "101")).digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with ''"),
        ("a,b\n0,1\n", "begins with 'a,b'; it must be 'share,level' or 'key,level'"),
        ("share,level\n", "it must be 'share,level'"),
        ("share,level\n0,1,2\n", "line 2 has 3 cells"),
        ("share,level\n0,1000\n", "line 2 has the level '1000'"),
        ("share,level\n0,1.5\n", "levels are whole numbers in 0 ... 999"),
        ("share,level\nhalf,1\n", "share that is no number"),
        ("share,level\n0.1,1\n", "must begin with 0"),
        ("share,level\n0,1\n0.5,2\n0.5,3\n", "ascend to 1 at most"),
        ("share,level\n0,1\n1.5,2\n", "ascend to 1 at most"),
        ("share,level\n0,1\nnan,2\n", "share that is no number"),
        ("key,level\na,1\nb,2\na,3\n", "names the key a more than once"),
    ],
)
def test_a_wrong_table_is_one_line(table, text, message):
    with pytest.raises(DataError, match=message) as found:
        table(text)
    assert "\n" not in str(found.value)


def test_a_table_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(DataError, match="cannot be read as a level table"):
        LevelTable.read(tmp_path / "none.csv")
