"""Which work in the cache belongs to an identity that is there no more."""

from dataclasses import replace

import pytest

from viewkit.shards.identity import Identity, write_identity
from viewkit.shards.stores.stale import is_replaced

FIRST = Identity("pack", 1, {"px": 224}, {}, {"shards": 1, "rows": 5})
GROWN = replace(FIRST, plan={"shards": 2, "rows": 9}).as_grown_from(FIRST)


@pytest.mark.parametrize(
    ("now", "replaced"),
    [
        (FIRST, False),
        (GROWN, False),
        (replace(GROWN, plan={"shards": 3, "rows": 12}).as_grown_from(GROWN), False),
        (replace(FIRST, version=2), True),
        (replace(GROWN, config={"px": 32}, earlier=()), True),
    ],
)
def test_what_grew_or_has_other_software_is_the_same_and_other_settings_are_not(tmp_path, now, replaced):
    write_identity(tmp_path / "found", FIRST)
    write_identity(tmp_path / "now", now, {"threads": "3"})
    assert is_replaced((tmp_path / "found").read_bytes(), (tmp_path / "now").read_bytes()) == replaced


@pytest.mark.parametrize("damaged", [b"", b"[]", b"{}", b'{"identity": "a", "earlier": [1]}', b"\xff"])
def test_nothing_is_deleted_for_a_damaged_identity(damaged):
    assert not is_replaced(damaged, b'{"identity": "a"}') and not is_replaced(b'{"identity": "a"}', damaged)
