"""The table of packages in docs/licences.md: `python docs/licences.py` writes it anew from what is installed."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

PAGE = Path(__file__).with_name("licences.md")
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
BEGIN, END = "<!-- packages: written by docs/licences.py -->", "<!-- end of packages -->"
LONGEST = 40
"""Characters of a licence's name; longer ones are the whole text, which some packages put in its place."""


def runtime_packages() -> list[str]:
    """Names of the packages that viewkit itself asks for, without the extras."""
    lines = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    return sorted((re.split(r"[<>=!~;\[ ]", line)[0] for line in lines), key=str.lower)


def licence_of(package: str) -> str:
    """What a package's metadata say: an SPDX expression, else the classifier, else the short text of the licence."""
    about = metadata.metadata(package)
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    classifiers = [each for each in about.get_all("Classifier") or [] if each.startswith("License ::")]
    text = str(about.get("License") or "").strip()
    if text and len(text) <= LONGEST and "\n" not in text:
        return text
    return classifiers[0].split(" :: ")[-1] if classifiers else "see its distribution"


def table() -> str:
    rows = [f"| {name} | {licence_of(name)} |" for name in runtime_packages()]
    return "\n".join([BEGIN, "", "| package | licence |", "|---|---|", *rows, "", END])


def page() -> str:
    """The page with the table written anew."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + table() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
