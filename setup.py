"""What pyproject.toml cannot say: the packages, found in the tree, and the compiled kernels.

The folders cli, pipelines and shards install as viewkit.cli, viewkit.pipelines and viewkit.shards, and cli/api as
viewkit itself: the public names. The kernels are
optional: without a C compiler views are rendered by torch's operations.
"""

from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
TOPS = ("cli", "pipelines", "shards")
API = Path("cli/api")
KERNELS = "pipelines/views/render/kernels.c"


def packages() -> list[str]:
    """Every folder with an ``__init__.py`` below the three, as a package of viewkit; `API` as viewkit itself."""
    found = [path.parent.relative_to(ROOT) for top in TOPS for path in ROOT.glob(f"{top}/**/__init__.py")]
    return sorted("viewkit" if folder == API else "viewkit." + ".".join(folder.parts) for folder in found)


def kernels() -> Extension:
    """The digest shows whether a library was built from the source beside it; without contraction of multiplications
    and additions every instruction set gives the same bits."""
    digest = sha256((ROOT / KERNELS).read_bytes()).hexdigest()[:16]
    return Extension(
        "viewkit.pipelines.views.render._kernels",
        [KERNELS],
        define_macros=[("SOURCE_DIGEST", digest)],
        extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
        optional=True,
    )


if __name__ == "__main__":
    setup(packages=packages(), ext_modules=[kernels()])
