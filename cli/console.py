"""What is printed: lines and JSON objects on standard output, errors as one line on standard error."""

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

from viewkit.shards.files import explained
from viewkit.shards.stores.mounts import in_words

CONTROL = ("Cc", "Cf")
"""Unicode categories of characters that are not shown but do something, e.g. move the cursor or reverse the text."""


def print_json(value: Any) -> None:
    say(json.dumps(value, sort_keys=True))


def print_error(message: str) -> None:
    """The one line of an error; names with line breaks cannot make it two."""
    print("error: " + printable(" ".join(message.splitlines())), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A line on standard output."""
    with explained(Path("standard output")):
        print(printable(text), flush=True)


def printable(text: str) -> str:
    """The text with control characters written out: names and messages from data must not steer the terminal. Cache
    folders of datasets in stores are shown as the URLs that they stand for."""
    text = in_words(text)
    return "".join(
        each if each in "\n\t" or unicodedata.category(each) not in CONTROL else ascii(each)[1:-1] for each in text
    )
