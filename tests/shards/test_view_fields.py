"""Several generated views in one row: the first reads as a single one would."""

import pytest

from viewkit.shards.codecs import image_field
from viewkit.shards.errors import DataError
from viewkit.shards.view_fields import fields_of_views, views_of_fields

VIEWS = [{"jpg": b"first"}, {"png": b"second"}, {"jpg": b"third"}]


def test_views_come_back_in_order():
    assert views_of_fields({**fields_of_views(VIEWS), "json": b"{}"}) == VIEWS
    assert list(fields_of_views(VIEWS)) == ["jpg", "1.png", "2.jpg"]


def test_more_than_ten_views_stay_in_order():
    views = [{"jpg": bytes([i])} for i in range(12)]
    assert views_of_fields(dict(reversed(fields_of_views(views).items()))) == views


def test_one_view_lies_as_one_image_does():
    assert fields_of_views(VIEWS[:1]) == VIEWS[0]


def test_readers_of_one_image_find_the_first():
    assert image_field(fields_of_views(VIEWS)) == ("jpg", b"first")


def test_a_row_without_views_is_an_error():
    with pytest.raises(DataError, match="exactly one image field"):
        views_of_fields({"1.jpg": b"second"})
