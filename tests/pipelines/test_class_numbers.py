"""A label is the number of its class, whoever reads it."""

import pytest

from viewkit.pipelines.labels import class_number
from viewkit.shards.errors import DataError


def test_a_label_is_its_number():
    assert [class_number(text, "a", "here") for text in (b"0", b" 7\n", b"123456789")] == [0, 7, 123456789]


@pytest.mark.parametrize("text", [b"cat", b"-1", b"1.5", b"", b"1234567890", None, "\u0663".encode()])
def test_any_other_text_is_one_line_that_says_where_and_what_next(text):
    with pytest.raises(DataError, match=r"^here: the label of 'a' is b'.*' and must be a class number; attach labels"):
        class_number(text, "a", "here")
