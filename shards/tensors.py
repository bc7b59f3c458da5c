"""Checks files of tensors without torch: that what `pipelines.models.checkpoint.save_tensors` wrote has not changed.

A safetensors file is the size of its header (8 bytes, little-endian), the header in JSON and the tensors' bytes. Our
entry of the metadata holds a checksum over all tensors.
"""

import json
import os
from pathlib import Path
from typing import Any

import xxhash

from viewkit.shards.errors import DataError
from viewkit.shards.files import explained

HEADER = "viewkit"
"""Name of our entry in a file's metadata."""
DTYPES = {
    **{f"F{bits}": f"torch.float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"torch.int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"torch.uint{bits}" for bits in (8, 16, 32, 64)},
    "BF16": "torch.bfloat16",
    "BOOL": "torch.bool",
}
"""safetensors' name of a type -> torch's, which is what the checksum is made of."""
LARGEST_HEADER = 10**8
BLOCK_BYTES = 2**24


def check_tensors(path: Path) -> int:
    """Bytes of the file, all of which were read; `DataError` when one of them has changed."""
    try:
        with explained(path), open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if length > min(size, LARGEST_HEADER):
                raise ValueError("header")
            header: dict[str, Any] = json.loads(file.read(length))
            ours = json.loads(header.pop("__metadata__")[HEADER])
            found = xxhash.xxh3_64(ours["state"].encode())
            expected = 0
            for name in sorted(header):
                about = header[name]
                start, end = about["data_offsets"]
                found.update(f"{name} {DTYPES[about['dtype']]} {list(about['shape'])}".encode())
                expected += end - start
                file.seek(8 + length + start)
                while start < end:
                    block = file.read(min(BLOCK_BYTES, end - start))
                    if not block:
                        raise ValueError("cut")
                    found.update(block)
                    start += len(block)
            intact = found.hexdigest() == ours["check"] and 8 + length + expected == size
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        intact = False
    if not intact:
        raise DataError(f"{path}: damaged, its tensors do not match its checksum; {_remedy(path)}")
    return size


def _remedy(path: Path) -> str:
    return (
        f"delete {path.parent} to start over" if path.parent.name == "checkpoint" else "delete it and rerun the stage"
    )
