"""The site of the docs: `make site` builds it into build/site; a warning is an error."""

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from viewkit.cli.schema import EXPERIMENT, schema_of

project = "viewkit"
author = "the viewkit developers"
release = metadata.version("viewkit")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
exclude_patterns = ["examples/*.md"]
html_theme = "furo"
html_title = f"viewkit {release}"
html_static_path: list[str] = []
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # shapes stand in strings; the signatures and the docstrings show them
autodoc_default_options = {"members": True}


LITERAL = re.compile(r"``(.+?)``|`([^`]+)`", re.DOTALL)
PARAGRAPH = re.compile(r"(Raises|Returns|[a-z_]\w*(, \w+)*: )")


def as_plain_text(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are paragraphs with back-quoted names; what else reStructuredText would read into them is escaped."""
    flowing: list[str] = []
    for line in lines:
        above = flowing[-1].strip() if flowing else ""
        if above and PARAGRAPH.match(line):  # what a parameter is
            flowing.append("")
        flowing.append(line.strip() if above and line.startswith("    ") else line)
    text, end = "", 0
    whole = "\n".join(flowing)
    for found in LITERAL.finditer(whole):
        literal = " ".join((found[1] or found[2]).split())
        text += escaped(whole[end : found.start()]) + f"\\ ``{literal}``\\ "
        end = found.end()
    lines[:] = (text + escaped(whole[end:])).split("\n")


def escaped(text: str) -> str:
    return re.sub(r"(?<=\w)_(?=\W|$)|[*|\\]", lambda found: "\\" + found[0], text)


def write_schema(app: Any, error: Exception | None) -> None:
    """The experiments' schema lies beside the pages, for the first line of a file: `#:schema URL`."""
    if error is None:
        (Path(app.outdir) / "experiment.schema.json").write_text(json.dumps(schema_of(EXPERIMENT), indent=1))


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_plain_text)
    app.connect("build-finished", write_schema)
