"""The index that `retrieval` searches: embeddings of many images, their statistics, and exact nearest neighbours.

All of it block by block, so that the index may be larger than memory.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from viewkit.shards.files import explained, open_own

BLOCK_BYTES = 64 * 2**20
"""Memory of one block of the index."""


def block_rows(width: int, num_bytes: int = BLOCK_BYTES) -> int:
    return max(1, num_bytes // (4 * width))


class Embeddings:
    """One row per image, zeros where there is none. With a path the array is a mapped file and may exceed memory."""

    def __init__(self, rows: int, width: int, path: Path | None) -> None:
        shape, self.path = (rows, width), path
        self.values: np.ndarray = np.zeros(shape, np.float32) if path is None else mapped(path, shape)
        self.present = np.zeros(rows, bool)
        self.block = block_rows(width)

    def put(self, row: int, embedding: Float[Tensor, " d"]) -> None:
        self.values[row] = embedding.cpu().numpy()
        self.present[row] = True

    def put_rows(self, rows: range, part: "Embeddings") -> None:
        """Those of a part, whose first row is `rows.start` here."""
        self.values[rows.start : rows.stop] = part.values
        self.present[rows.start : rows.stop] = part.present

    def statistics(self) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
        """Mean and standard deviation of each feature; a constant feature gets a deviation of 1."""
        return feature_statistics(self.values, self.present)

    def to_index(self, mean: Float[Tensor, " d"], std: Float[Tensor, " d"]) -> None:
        """Replace every row by its standardised embedding at unit length, in place; zeros stay."""
        for start in range(0, len(self.values), self.block):
            part = slice(start, start + self.block)
            z = (self.values[part].astype(np.float64) - mean.double().numpy()) / std.double().numpy()
            unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
            self.values[part] = np.where(self.present[part, None], unit, 0)
        if isinstance(self.values, np.memmap):
            self.values.flush()


def feature_statistics(
    values: Float[np.ndarray, "n d"], chosen: Bool[np.ndarray, " n"]
) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Mean and standard deviation of each feature over the chosen rows; a constant feature gets a deviation of 1."""
    block, zeros, count = block_rows(values.shape[1]), np.zeros(values.shape[1]), chosen.sum()

    def parts() -> Iterator[Float64[np.ndarray, "m d"]]:
        for start in range(0, len(values), block):
            part = slice(start, start + block)
            yield values[part][chosen[part]].astype(np.float64)

    mean = sum((part.sum(axis=0) for part in parts()), zeros) / count
    std = np.sqrt(sum((((part - mean) ** 2).sum(axis=0) for part in parts()), zeros) / count)
    std[std <= 1e-6 * np.abs(mean)] = 1.0
    return torch.from_numpy(mean).float(), torch.from_numpy(std).float()


def mapped(path: Path, shape: tuple[int, ...], kind: str = "<f4") -> np.memmap:
    """A new array file of numbers of this kind, mapped.

    Its blocks are allocated first: on a full disk that is an error in one line, where writing to a mapped hole would
    end the process by a signal.
    """
    with explained(path), open(path, "w+b", opener=open_own) as file:
        header = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        offset, size = file.tell(), np.dtype(kind).itemsize * math.prod(shape)
        file.flush()
        if size:
            os.posix_fallocate(file.fileno(), offset, size)
        return np.memmap(file, dtype=kind, mode="r+", offset=offset, shape=shape)


def nearest_other(
    queries: Float[Tensor, "n d"],
    index: Float[np.ndarray, "m d"] | Float[Tensor, "m d"],
    own: Int[Tensor, " n"],
    block: int,
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """Row of `index` with the largest dot product with each query, and that product; the lowest row where they tie.

    index: rows of unit length, or all zero for images that must not be found; may be a memory map, or lie on the
    queries' device (`resident`). own: the row each query stems from, never the result. Where nothing is left the
    result is -1, with a product of -inf.
    """
    best = torch.full((len(queries),), -torch.inf, device=queries.device)
    where = torch.full((len(queries),), -1, dtype=torch.int64, device=queries.device)
    own = own.to(queries.device)
    for start in range(0, len(index), block):
        rows = torch.as_tensor(index[start : start + block]).to(queries)  # no copy on a CPU
        products = queries @ rows.mT  # n m
        products.masked_fill_(~rows.any(dim=1), -torch.inf)
        inside = (own >= start) & (own < start + len(rows))
        products[inside.nonzero().squeeze(1), own[inside] - start] = -torch.inf
        top, place = products.max(dim=1)
        closer = top > best
        best, where = torch.where(closer, top, best), torch.where(closer, place + start, where)
    return where, best


def resident(index: Float[np.ndarray, "m d"], device: str) -> Float[np.ndarray, "m d"] | Float[Tensor, "m d"]:
    """The index where it is searched: on a GPU for good where it takes at most half of the free memory, else as it is,
    and then every search copies it block by block."""
    if torch.device(device).type != "cuda" or not fits(index.nbytes, torch.cuda.mem_get_info(device)[0]):
        return index
    return torch.from_numpy(np.asarray(index)).to(device)


def fits(num_bytes: int, free: int) -> bool:
    """Whether the index leaves the other half of the free memory to the networks."""
    return 2 * num_bytes <= free


def open_index(path: Path) -> Float[np.ndarray, "m d"]:
    """A memory map of the rows `foreground` wrote; copy-on-write, since torch takes no read-only memory."""
    array: np.ndarray = np.load(path, mmap_mode="c", allow_pickle=False)
    return array
