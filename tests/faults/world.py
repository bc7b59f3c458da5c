"""The chain under test: 32 small images, every command of the chain with its smallest settings, and what is right.

`World` makes the chain once, undisturbed, and keeps a copy of the dataset before every command.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from server import Request

HERE = Path(__file__).parent
IMAGES = 32
LOGS = ("metrics.jsonl", "checkpoint", "tensorboard")

TRAINING = ("--steps", "3", "--batch-size", "8", "--hidden", "16", "--dim", "16", "--warmup-epochs", "0")
COMMANDS: dict[str, tuple[str, ...]] = {
    "pack": ("pack", "SOURCE", "DATASET", "--labels", "folders", "--rows-per-shard", "16", "--workers", "1"),
    "estimator": ("estimator", "DATASET", "--preset", "pico-32", *TRAINING),
    "generate": ("generate", "DATASET", "--sample", "20", "--sign", "+", "--workers", "1"),
    "histograms": ("histograms", "DATASET", "--images", "32", "--negatives", "15"),
    "score": ("score", "DATASET", "--rounds", "2", "--workers", "1"),
    "rescore": ("rescore", "DATASET", "--gamma", "0.4", "--workers", "1"),
    "quality": ("quality", "DATASET", "--sample", "20", "--sign", "+", "--workers", "1"),
    "audit": ("audit", "DATASET", "--images", "12"),
    "pretrain": (
        "pretrain", "DATASET", "--name", "r", "--framework", "simclr", "--arch", "vit_pico_patch8", *TRAINING,
        "--select", "vs2fi", "--policy", "strengthened",
    ),
    "evaluate": ("evaluate", "DATASET/runs/r", "TEST", "--k", "3", "--no-baselines"),
    "report": ("report", "DATASET"),
}  # fmt: skip
"""In the order of a run. SOURCE, DATASET and TEST (a labelled dataset of other images) stand for folders."""


def photographs(folder: Path, seed: int = 0) -> None:
    """32 small images in four classes."""
    generator = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:40, 0:40] / 40
    for place in range(IMAGES):
        centre, colour = generator.uniform(0.3, 0.7, 2), generator.uniform(60, 255, 3)
        blob = np.exp(-((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2) / 0.02)[..., None]
        ground = 80 * (rows + columns)[..., None] * generator.uniform(0.2, 1, 3)
        noise = generator.normal(0, 6, (40, 40, 3))
        path = folder / f"class{place % 4}" / f"image{place:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(ground * (1 - blob) + colour * blob + noise, 0, 255).astype(np.uint8)).save(path)


class Server:
    """One fork server with the shim preloaded."""

    def __init__(self, shim: Path, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "server.py"), str(scratch)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self._line()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the fork server is gone"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __call__(self, request: Request) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asdict(request)) + "\n")
        self.process.stdin.flush()
        return self._line()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def build_shim(folder: Path) -> Path:
    """The compiled shim. `FileNotFoundError` where there is no C compiler."""
    path = folder / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(path), str(HERE / "shim.c"), "-ldl"], check=True)
    return path


class SmallDisk:
    """Context manager: a file system of its own at `folder`, in memory, that holds so many files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True, capture_output=True)

    def leave(self, inodes: int | None) -> None:
        """Let so many more files be made; None: any number."""
        most = 0 if inodes is None else sum(1 for _ in self.folder.rglob("*")) + 1 + inodes
        subprocess.run(["mount", "-o", f"remount,nr_inodes={most}", str(self.folder)], check=True, capture_output=True)

    def __enter__(self) -> "SmallDisk":
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


def can_mount(root: Path) -> str | None:
    """Why small file systems cannot be made here; None where they can."""
    try:
        with SmallDisk(root / "small"):
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        return said.decode().strip().splitlines()[-1]


def fill(argv: tuple[str, ...], source: Path, dataset: Path, test: Path) -> list[str]:
    names = {"SOURCE": source, "DATASET": dataset, "TEST": test}
    return [re.sub("SOURCE|DATASET|TEST", lambda found: str(names[found[0]]), word) for word in argv]


def digest_of(dataset: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file whose bytes are a function of inputs and identity.

    Logs and what names their digests (an artifact's receipt) are left out: they hold times.
    """
    found = {}
    for path in sorted(dataset.rglob("*")):
        parts = path.relative_to(dataset).parts
        if not path.is_file() or ".locks" in parts or path.name == "receipt.json" or {*LOGS} & {*parts}:
            continue
        if parts[0] in ("report", "audit") and path.suffix in (".html", ".json"):
            continue  # they quote metrics' times and the machine's folders
        found["/".join(parts)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@dataclass
class World:
    """root: a folder in memory. before: command -> the dataset as it was before it. after: digests after it."""

    root: Path
    source: Path
    test: Path
    before: dict[str, Path]
    after: dict[str, dict[str, str]]
    counts: dict[str, dict[str, int]]
    seconds: dict[str, float]
    modules: list[str]
    """What the commands import beyond what the servers have; imported there, it is no child's work."""

    @staticmethod
    def make(root: Path, server: Server, names: tuple[str, ...] = tuple(COMMANDS)) -> "World":
        world = World(root, root / "source", root / "test" / "data", {}, {}, {}, {}, [])
        photographs(world.source)
        photographs(root / "others", seed=1)
        said = server(Request(["pack", str(root / "others"), str(world.test), "--labels", "folders"]))
        assert said["code"] == 0, said
        dataset = root / "chain" / "data"
        dataset.mkdir(parents=True)
        for name in names:
            world.before[name] = root / "before" / name
            shutil.copytree(dataset, world.before[name])
            said = server(
                Request(
                    fill(COMMANDS[name], world.source, dataset, world.test), arm=[str(dataset), None, 0, "count", 0]
                )
            )
            assert said["code"] == 0, (name, said)
            world.modules += [module for module in said["modules"] if module not in world.modules]
            world.after[name], world.counts[name], world.seconds[name] = (
                digest_of(dataset),
                said["counts"],
                said["seconds"],
            )
        return world
