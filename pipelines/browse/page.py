"""The page: template, style and script beside this file, in one document that allows nothing but these."""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from viewkit.pipelines.browse.data import as_script

SCRIPTS = ("arrays.js", "alg1.js", "plot.js", "histograms.js", "pair.js", "page.js")
"""In the order in which they stand in the one script element."""


def render_page(content: Mapping[str, Any], title: str) -> str:
    """One HTML document. Its policy allows the one script and the one style by their hashes, pictures as data URIs, and
    nothing from anywhere."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    own = files("viewkit.pipelines.browse")
    parts = [(own / "script" / name).read_text(encoding="utf-8") for name in SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    style = (own / "page.css").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string((own / "page.html").read_text(encoding="utf-8")).render(
        title=title,
        policy=f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=Markup(as_script(content)),
    )


def source_hash(text: str) -> str:
    """How a content policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
