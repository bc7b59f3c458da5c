from dataclasses import replace

import pytest

from viewkit.shards.errors import RefusedError
from viewkit.shards.identity import Identity, read_identity, refuse_other, write_identity

IDENTITY = Identity("score", 1, {"rounds": 4, "gamma": 0.015625}, {"images": "a" * 64}, {"shards": 2, "rows": 20})


def test_an_identity_reads_back_equal(tmp_path):
    write_identity(tmp_path / "column.json", IDENTITY)
    assert read_identity(tmp_path / "column.json", "") == IDENTITY


def test_the_digest_changes_with_every_field():
    others = [
        replace(IDENTITY, stage="pack"),
        replace(IDENTITY, version=2),
        replace(IDENTITY, config={"rounds": 5, "gamma": 0.015625}),
        replace(IDENTITY, inputs={"images": "b" * 64}),
        replace(IDENTITY, plan={"shards": 2, "rows": 21}),
    ]
    assert len({IDENTITY.digest, *(other.digest for other in others)}) == 6


def test_another_identity_is_refused_and_every_difference_is_named(tmp_path):
    wanted = replace(IDENTITY, config={"rounds": 8, "gamma": 0.015625}, inputs={"images": "b" * 64})
    with pytest.raises(RefusedError) as caught:
        refuse_other(tmp_path / "pairs" / "column.json", IDENTITY, wanted)
    message = str(caught.value)
    assert "config.rounds is 4 there and 8 now" in message
    assert "it was made from another 'images' than there is now" in message
    assert "gamma" not in message
    assert "\n" not in message


def test_the_same_identity_is_not_refused(tmp_path):
    refuse_other(tmp_path / "column.json", IDENTITY, replace(IDENTITY))
