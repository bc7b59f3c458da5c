"""Code as the pages show it, for the tests that run it."""

import re
from pathlib import Path

EXTEND = Path(__file__).parents[2] / "docs" / "extend.md"


def code_after(words: str, language: str = "python") -> str:
    """The first block of code after `words` in docs/extend.md."""
    text = EXTEND.read_text()
    found = re.search(rf"```{language}\n(.*?)```", text[text.index(words) :], re.DOTALL)
    assert found is not None, words
    return found[1]
