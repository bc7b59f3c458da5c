"""Exact nearest neighbours by dot product, block by block, so that the index may be larger than memory."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK_BYTES = 64 * 2**20
"""Memory of one block of the index."""


def block_rows(width: int, num_bytes: int = BLOCK_BYTES) -> int:
    return max(1, num_bytes // (4 * width))


def nearest_other(
    queries: Float[Tensor, "n d"],
    index: Float[np.ndarray, "m d"],
    own: Int[Tensor, " n"],
    block: int,
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """Row of `index` with the largest dot product with each query, and that product; the lowest row where they tie.

    index: rows of unit length, or all zero for images that must not be found; may be a memory map. own: the row each
    query stems from, never the result. Where nothing is left the result is -1, with a product of -inf.
    """
    best = torch.full((len(queries),), -torch.inf, device=queries.device)
    where = torch.full((len(queries),), -1, dtype=torch.int64, device=queries.device)
    own = own.to(queries.device)
    for start in range(0, len(index), block):
        rows = torch.from_numpy(np.array(index[start : start + block])).to(queries)
        products = queries @ rows.mT  # n m
        products.masked_fill_(~rows.any(dim=1), -torch.inf)
        inside = (own >= start) & (own < start + len(rows))
        products[inside.nonzero().squeeze(1), own[inside] - start] = -torch.inf
        top, place = products.max(dim=1)
        closer = top > best
        best, where = torch.where(closer, top, best), torch.where(closer, place + start, where)
    return where, best


def open_index(path: Path) -> Float[np.ndarray, "m d"]:
    """A memory map of the rows `foreground` wrote."""
    array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
