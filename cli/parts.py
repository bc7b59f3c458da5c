"""Parts that viewkit works without: what each missing one would give, and how it is had. For `viewkit doctor`."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from viewkit.pipelines.weights.cards import GENERATORS

EXTRAS: Mapping[str, str] = {
    "tracking": "curves of a training in TensorBoard (--tensorboard)",
    "parquet": "Parquet files: as sources, and as tables of pairs and scores",
    "cloud": "datasets, sources and weights in object stores (s3://, gs://, az://)",
    "ray": "columns on a Ray cluster (--on ray)",
    "docs": "the site of the docs (make site)",
    "dev": "the tests, lint and types of viewkit's own code",
}
"""Extra of pyproject.toml -> what it gives."""

COMPLETIONS = (".bash_completions/viewkit.sh", ".zfunc/_viewkit", ".config/fish/completions/viewkit.fish")
"""Where `viewkit --install-completion` puts its files, below the home folder."""
COMPILERS = ("c++", "g++", "clang++")
DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Part:
    """value: what is missing and what it would give. advice: how it is had."""

    name: str
    value: str
    advice: str


def missing_parts(extras: Mapping[str, list[str]]) -> Iterator[Part]:
    """extras: extra -> those of its packages that are not there."""
    for extra, names in extras.items():
        if names:
            gives = f"; they would give {EXTRAS[extra]}" if extra in EXTRAS else ""
            yield Part(
                "extras",
                f"{extra} lacks {', '.join(names)}{gives}",
                f"pip install '.[{extra}]', where viewkit's source is",
            )
    if not any(map(shutil.which, COMPILERS)):
        gives = "no C++ compiler; one would give --compile on a CPU, and viewkit's kernels when it is installed anew"
        yield Part("compiler", gives, "install g++ or clang++ with the system's packages, e.g. 'apt install g++'")
    if not any((Path.home() / name).exists() for name in COMPLETIONS):
        gives = "none of the shell; it would complete commands, options and their values"
        yield Part("completion", gives, "viewkit --install-completion, and a new shell")
    names = [name for name, card in GENERATORS.items() if card.needs_weights]
    gives = f"not looked for; they would give views by the generators {', '.join(names)} (the others need none)"
    yield Part("weights", gives, "docs/generators.md names their sources and licences; then --weights FOLDER")


def gpu_part(torch: str, cuda: str | None, driver: Path = DRIVER) -> Part:
    """Why torch finds no GPU, as far as that can be seen. torch: its version; cuda: the one it was built for."""
    value = "none that torch can use; one would make training at 224 px and diffusion generators practical"
    if driver.exists() and cuda is None:
        how = (
            f"there is an NVIDIA driver, but torch {torch} is built without CUDA: install torch and torchvision with it"
        )
    elif driver.exists():
        how = f"there is an NVIDIA driver, but torch {torch} for CUDA {cuda} cannot use it: nvidia-smi should say why"
    else:
        how = (
            "it takes a machine with an NVIDIA GPU and its driver; everything runs without, 'retrieval' generates there"
        )
    return Part("GPU", value, how)
