"""The candidates and what was selected, step by step: the data behind Hard View Selection's sec. 5.1 and appendix D."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from viewkit.pipelines.distributed import is_main
from viewkit.pipelines.pairs.scene import Scene
from viewkit.pipelines.views.recipe import FIELDS
from viewkit.shards.files import make_folder, write_atomic

FOLDER = "views"


@dataclass(frozen=True)
class ViewLog:
    """Writes ``views/STEP.npz`` of every `every`-th step into `folder`: the rows of the main process.

    A resumed run writes the steps after its checkpoint again, with the same bytes.
    """

    folder: Path
    every: int

    def logs(self, step: int) -> bool:
        """Whether this step is written, by this process."""
        return step % self.every == 0 and is_main()

    def write(
        self, step: int, scene: Scene, *, views: Int[np.ndarray, "n k"], losses: np.ndarray, iou: np.ndarray | None
    ) -> None:
        """step: number of finished steps. views: the selected ones of the scene's; losses, iou: of its pairs [n c], or,
        for multi-crop, losses [n t s] of every teacher's and student's crop and no iou."""
        if not self.logs(step):
            return
        heights_widths = np.array([image.shape[:2] for image in scene.images], dtype=np.int32)
        arrays = {
            "step": np.array(step),
            "keys": np.array(scene.keys, dtype=np.str_),
            "fields": np.array(FIELDS),
            "recipes": scene.recipes,
            "sizes_px": heights_widths[scene.image_index],  # n v 2
            "views": views,
            "losses": losses,
            **({} if iou is None else {"iou": iou.astype(np.float32)}),
        }
        make_folder(self.folder / FOLDER)
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        write_atomic(self.folder / FOLDER / f"{step:08d}.npz", content.getvalue())


def read_view_log(folder: Path) -> dict[str, np.ndarray]:
    """All logged steps of a run, joined over rows, with the `step` [n] of every row. Empty where nothing was logged."""
    parts: list[dict[str, np.ndarray]] = []
    for path in sorted((folder / FOLDER).glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            part = {name: arrays[name] for name in arrays.files if name != "fields"}
        parts.append({**part, "step": np.full(len(part["recipes"]), part["step"])})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
