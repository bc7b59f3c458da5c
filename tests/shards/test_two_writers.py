"""Two writers of one shard whose bytes differ: in every order of their steps the first receipt counts, whole."""

from collections.abc import Iterator
from itertools import combinations

import pytest

from viewkit.shards.column import Column
from viewkit.shards.errors import DataError
from viewkit.shards.files import write_first
from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.row import Reject, Row
from viewkit.shards.verify import verify_column
from viewkit.shards.writer import ShardWriter, publish, settle

IDENTITY = Identity("numbers", 1, {}, {}, {"shards": 1, "rows": 2})
STEPS = 4
Outcomes = list[Row | Reject]
UNLIKE: tuple[Outcomes, Outcomes] = (
    [Row("a", {"bin": b"one"}), Row("b", {"bin": b"1"})],
    [Row("a", {"bin": b"two"}), Row("b", {"bin": b"2"})],  # of the same size
)
OTHER_REJECTS: tuple[Outcomes, Outcomes] = (
    [Row("a", {"bin": b"one"}), Reject("b", "unlucky")],
    [Row("a", {"bin": b"one"}), Reject("b", "unreadable")],
)
ALIKE: tuple[Outcomes, Outcomes] = (UNLIKE[0], UNLIKE[0])


@pytest.fixture
def column(tmp_path):
    (tmp_path / "images").mkdir()
    write_identity(tmp_path / "images" / "column.json", IDENTITY)
    return tmp_path / "images"


def writer_steps(folder, outcomes: Outcomes) -> Iterator[None]:
    """What `ShardWriter.finish` does, a step at a time."""
    writer = ShardWriter(folder, 0, IDENTITY.digest)
    for outcome in outcomes:
        writer.write(outcome)
    yield
    receipt = writer.seal()
    yield
    first = writer.commit(receipt)
    yield
    if first:
        publish(folder, receipt)
    else:
        writer.give_way(receipt)
    yield


def orders(steps_of_first: int) -> list[tuple[int, ...]]:
    """Every order of the steps of two writers; the first is stopped for good after `steps_of_first` of them."""
    total = steps_of_first + STEPS
    return [
        tuple(0 if place in chosen else 1 for place in range(total))
        for chosen in combinations(range(total), steps_of_first)
    ]


def held(folder) -> tuple[list[Row], list[str]]:
    """Rows and reasons of rejects, read as a stage reads them and as a trainer does."""
    column = Column(folder)
    rows = list(column.rows(0))
    assert [Row(key, column.fields(place)) for place, key in enumerate(column.keys())] == rows
    return rows, [each.reason for each in column.rejects.values()]


@pytest.mark.slow
@pytest.mark.parametrize("settles", [False, True], ids=["alone", "with a run that looks in between"])
@pytest.mark.parametrize("kind", [UNLIKE, OTHER_REJECTS, ALIKE], ids=["unlike", "other rejects", "alike"])
def test_in_every_order_the_first_receipt_counts_and_what_it_says_is_read_from_then_on(column, kind, settles):
    for steps_of_first in range(STEPS + 1):
        for order in orders(steps_of_first):
            writers = [writer_steps(column, outcomes) for outcomes in kind]
            receipt = column / "000000.json"
            said = found = None
            for number in order:
                next(writers[number])
                if settles:
                    settle(column, [0], IDENTITY.digest)
                if receipt.exists():
                    said, found = said or receipt.read_bytes(), found or held(column)
                    assert receipt.read_bytes() == said and held(column) == found, order
            for path in column.glob("*.part"):  # of a writer that was stopped early
                path.unlink()
            settle(column, [0], IDENTITY.digest)
            assert held(column) == found
            assert [each.problem for each in verify_column(Column(column)) if each.problem] == [], order
            assert sorted(path.name for path in column.iterdir()) == ["000000.json", "000000.tar", "column.json"], order
            (column / "000000.json").unlink()
            (column / "000000.tar").unlink()


def test_a_writer_that_comes_second_returns_the_receipt_that_was_first(column):
    writers = [ShardWriter(column, 0, IDENTITY.digest) for _ in UNLIKE]
    for writer, outcomes in zip(writers, UNLIKE, strict=True):
        for outcome in outcomes:
            writer.write(outcome)
    assert writers[1].finish() == writers[0].finish()
    assert held(column)[0] == UNLIKE[1]


def test_a_shard_whose_writer_was_stopped_right_after_its_receipt_is_whole_and_verifies(column):
    steps = writer_steps(column, UNLIKE[0])
    for _ in range(STEPS - 1):
        next(steps)
    assert not (column / "000000.tar").exists()
    (column / "000000.tar").write_bytes(b"x" * 10240)  # of an earlier, damaged state
    assert held(column)[0] == UNLIKE[0]
    checked = [each.problem for each in verify_column(Column(column))]
    assert checked and not any(checked)
    settle(column, [0], IDENTITY.digest)
    assert held(column)[0] == UNLIKE[0] and not list(column.glob("*.ready"))


def test_a_tar_without_a_receipt_stays_its_writer_may_be_about_to_commit_it(column):
    steps = writer_steps(column, UNLIKE[0])
    next(steps), next(steps)
    settle(column, [0], IDENTITY.digest)
    assert len(list(column.glob("*.ready"))) == 1
    next(steps), next(steps)
    assert held(column)[0] == UNLIKE[0]


def test_a_part_file_that_another_run_removed_is_one_line(column):
    writer = ShardWriter(column, 0, IDENTITY.digest)
    writer.write(UNLIKE[0][0])
    writer.part.unlink()
    with pytest.raises(DataError, match="removed by another run that writes the same column"):
        writer.finish()


def test_of_two_files_the_first_stays_also_without_hard_links(tmp_path, monkeypatch):
    assert write_first(tmp_path / "a", b"1") and not write_first(tmp_path / "a", b"2")

    def refused(*_args, **_more):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    assert write_first(tmp_path / "b", b"1") and not write_first(tmp_path / "b", b"2")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"1", "b": b"1"}
