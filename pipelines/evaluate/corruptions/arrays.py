"""Published corrupted test images as arrays: CIFAR-10-C and CIFAR-100-C, a file ``CORRUPTION.npy`` each."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from viewkit.pipelines.evaluate.corruptions.levels import SEVERITIES
from viewkit.pipelines.evaluate.corruptions.protocol import PROTOCOLS, ProtocolName
from viewkit.shards.errors import DataError

LABELS = "labels.npy"


@dataclass(frozen=True)
class CorruptedArrays:
    """A folder of ``CORRUPTION.npy`` [5 n, s, s, 3] uint8, severities 1 ... 5 one after the other, and ``labels.npy``.

    Read where they lie, never unpickled. `DataError` names the file that is missing or is something else.
    """

    folder: Path

    def labels(self) -> Int[np.ndarray, " n"]:
        """Class numbers of the n images, which are the same at every severity."""
        labels = self._open(LABELS)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % SEVERITIES or not len(labels):
            raise DataError(
                f"evaluate: {self.folder / LABELS} is {labels.dtype} {list(labels.shape)}; needed class numbers [5 n]"
            )
        blocks = np.asarray(labels, dtype=np.int64).reshape(SEVERITIES, -1)
        if (blocks != blocks[0]).any():
            raise DataError(f"evaluate: {self.folder / LABELS}: the five severities have different labels")
        return blocks[0]

    def images(self, kind: str, severity: int) -> UInt8[np.ndarray, "n s s 3"]:
        """The images of one corruption at a severity."""
        name = f"{kind}.npy"
        images, count = self._open(name), len(self.labels())
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or len(images) != SEVERITIES * count:
            raise DataError(
                f"evaluate: {self.folder / name} is {images.dtype} {list(images.shape)}; needed uint8 "
                f"[{SEVERITIES * count} s s 3] to go with {LABELS}"
            )
        return np.array(images[(severity - 1) * count : severity * count])

    def digest(self, protocol: ProtocolName) -> str:
        """SHA-256 over all files that the protocol reads."""
        total = hashlib.sha256()
        for name in (LABELS, *(f"{kind}.npy" for kind in PROTOCOLS[protocol].kinds)):
            self._open(name)
            with (self.folder / name).open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        return f"sha256:{total.hexdigest()}"

    def _open(self, name: str) -> np.ndarray:
        path = self.folder / name
        if not path.is_file():
            raise DataError(f"evaluate: {path} is missing; give the folder of CIFAR-10-C's or CIFAR-100-C's .npy files")
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise DataError(f"evaluate: {path} is no array file ({str(error).splitlines()[0]})") from None
        if not isinstance(array, np.ndarray):
            raise DataError(f"evaluate: {path} is no plain array")
        return array
