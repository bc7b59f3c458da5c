"""Keys come from the path alone: unique, without dots, the same everywhere."""

import os
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkit.pipelines.pack.keys import display, path_digest, plain, row_key, shuffled
from viewkit.shards.errors import DataError

UNDECODABLE = st.integers(0xDC80, 0xDCFF).map(chr)  # how Python shows the bytes of names that are not UTF-8
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | UNDECODABLE, min_size=1, max_size=120
)


def test_keys_are_what_they_were() -> None:
    assert row_key("cats/tom 01.jpg") == "cats_tom_01_b8443e4e68af"
    assert row_key("写真.png") == "image_e4d693f27b65"
    assert row_key("-rf.jpg").startswith("rf_")


@given(NAMES)
def test_a_key_is_short_plain_and_without_dots(name: str) -> None:
    key = row_key(name)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}_[0-9a-f]{12}", key)


def test_paths_that_differ_in_anything_have_other_keys() -> None:
    paths = ["a/b.jpg", "a_b.jpg", "a/b.png", "A/b.jpg", "a/b.JPG", "a/b .jpg", "a//b.jpg", "x" * 300, "y" + "x" * 299]
    paths += [f"写真{i}.png" for i in "一二三四五"]
    assert len({row_key(path) for path in paths}) == len(paths)


def test_both_unicode_forms_of_a_name_give_one_key() -> None:
    name = "café/Ängström.jpg"
    forms = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")}
    assert len(forms) == 2 and len({row_key(form) for form in forms}) == 1


def test_names_that_are_not_utf8_have_keys() -> None:
    names = [os.fsdecode(b"caf\xe9.jpg"), os.fsdecode(b"caf\xea.jpg")]
    assert len({row_key(name) for name in names}) == 2


@given(st.lists(NAMES, unique_by=lambda name: unicodedata.normalize("NFC", name)), st.randoms())
def test_the_order_of_rows_does_not_depend_on_the_listing(paths: list[str], random) -> None:  # type: ignore[no-untyped-def]
    rows = [paths[i] for i in shuffled(paths)]
    again = random.sample(paths, len(paths))
    assert [again[i] for i in shuffled(again)] == rows
    assert [path_digest(row) for row in rows] == sorted(path_digest(row) for row in rows)


def test_two_spellings_of_one_name_are_an_error_that_names_both() -> None:
    with pytest.raises(DataError, match="give the same key"):
        shuffled(["\u00e9.jpg", "other.jpg", "e\u0301.jpg"])


def test_paths_in_messages_stay_on_one_line() -> None:
    assert display("a\nb\u2028c\x1b[31m.jpg") == r"a\nb\u2028c\x1b[31m.jpg"
    assert display("写真 'q'.jpg") == "写真 'q'.jpg"
    display(os.fsdecode(b"caf\xe9")).encode()
    assert plain(os.fsdecode(b"caf\xe9")) == r"caf\xe9"
