"""Everything the page knows, as one JSON text: numbers as little-endian arrays in base64, names as strings.

A name is text in it and nothing else: ``<`` is written as an escape, so no name can end the element that holds it.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

KINDS = {"f4": "float32", "f8": "float64", "u1": "uint8", "u2": "uint16", "u4": "uint32"}


def packed(values: np.ndarray, kind: str) -> dict[str, str]:
    """An array for the page's `unpack`; kind: one of `KINDS`."""
    array = np.ascontiguousarray(values, dtype=np.dtype(KINDS[kind]).newbyteorder("<"))
    return {"kind": kind, "base64": base64.b64encode(array.tobytes()).decode()}


def as_script(content: Mapping[str, Any]) -> str:
    """JSON that may stand in a ``<script type="application/json">``."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
