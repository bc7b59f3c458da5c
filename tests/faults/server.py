"""A process that has imported everything and forks a child for every case: a command then starts in milliseconds.

Started with the shim preloaded. Reads one JSON request per line from standard input, answers with one JSON line.
A request: ``{"argv": [...], "arm": [folder, kind, at, mode, errno] | null, ...}``; see `Request`.
"""

import contextlib
import ctypes
import gc
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINDS = ("write", "fsync", "rename", "link", "mkdir", "open", "map", "truncate", "unlink", "read")
MODES = ("count", "fail", "short", "kill_before", "kill_after", "vanish")
BUG = 70
"""Exit code of a child in which something escaped that no person can act on."""


@dataclass
class Request:
    """argv: of `viewkit`. arm: what `fault_arm` is given, kinds and modes by name. limits: resource name -> soft limit.

    user: run as this user id (a root's permissions are never denied). closed: standard streams that are closed.
    environment: variables to set, or to remove where None. folder: working folder. patience_s: then it is killed.
    """

    argv: list[str]
    arm: list[Any] | None = None
    limits: dict[str, int] = field(default_factory=dict)
    user: int | None = None
    closed: list[int] = field(default_factory=list)
    environment: dict[str, str | None] = field(default_factory=dict)
    folder: str | None = None
    patience_s: float = 60.0
    stop_after_s: float | None = None
    worker: list[str] = field(default_factory=list)
    """Names of signals for its first worker process, 0.2 s apart."""
    memory_mib: int | None = None
    """What its address space may grow by."""
    modules: list[str] = field(default_factory=list)
    """Names to import in the server itself instead of running anything; see `warm`."""


def preload() -> None:
    """Import what the commands import, so that no child does."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from importlib import import_module

    import sklearn.linear_model  # noqa: F401
    import timm  # noqa: F401
    import torch
    from matplotlib import pyplot  # noqa: F401
    from matplotlib.figure import Figure

    from viewkit.cli.commands import PIPELINE
    from viewkit.pipelines.training import loop, monitoring

    torch.set_num_threads(1)
    loop.CHECKPOINT_S = 0.0  # a checkpoint at every line of metrics, and a line at every step: something to resume
    monitoring.LOG_EVERY = 1
    Figure.savefig = draw_nothing  # type: ignore[method-assign]  # drawing took half of the time of all cases
    for spec in PIPELINE:
        spec.config_class()
        for step in spec.steps:
            step.stage_class()
    for module in ("viewkit.cli.main", "viewkit.shards.verify", "viewkit.pipelines.export.export"):
        import_module(module)


def draw_nothing(figure: Any, target: Any, *, format: str = "png", **_: Any) -> None:
    """In the place of `Figure.savefig`: the same files, with next to nothing in them."""
    if format == "svg":
        target.write('<svg xmlns="http://www.w3.org/2000/svg"></svg>')
    else:
        from PIL import Image

        Image.new("RGB", (8, 8)).save(target, format="png")


def warm(modules: list[str]) -> None:
    """Import what children have imported on their way, and keep the collector from looking at all of it: each look
    would write to every object, and so copy its page into the child."""
    from importlib import import_module

    for name in modules:
        with contextlib.suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()


def child(request: Request, out: str) -> int:
    """The command in this process; returns its exit code, `BUG` with a traceback on standard error."""
    for name, soft in request.limits.items():
        kind = getattr(resource, f"RLIMIT_{name.upper()}")
        resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))
    for name, value in request.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if request.memory_mib is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (request.memory_mib << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    os.chdir(request.folder or "/")
    stdout = os.open(f"{out}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    stderr = os.open(f"{out}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    for descriptor in request.closed:
        os.close(descriptor)
    if request.user is not None:
        os.setgid(request.user)
        os.setuid(request.user)
    sys.stdout, sys.stderr = (stream(number, request.closed) for number in (1, 2))
    if request.arm is not None:
        folder, kind, at, mode, error = request.arm
        arm = ctypes.CDLL(None).fault_arm
        arm(os.fsencode(folder), KINDS.index(kind) if kind else -1, ctypes.c_long(at), MODES.index(mode), error)
    from viewkit.cli.main import run

    try:
        code = run(request.argv)
        return code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 whatever escapes is what a case looks for
        with contextlib.suppress(OSError):
            traceback.print_exc()
        return BUG


def stream(number: int, closed: list[int]) -> io.TextIOWrapper | None:
    """A standard stream as a new interpreter has it: None where its descriptor is closed."""
    if number in closed:
        return None
    return io.TextIOWrapper(io.FileIO(number, "w", closefd=False), errors="backslashreplace", write_through=True)


def counted() -> dict[str, int]:
    count = ctypes.CDLL(None).fault_count
    count.restype = ctypes.c_long
    return {name: int(count(place)) for place, name in enumerate(KINDS)}


def serve(scratch: str) -> None:
    preload()
    warm([])
    known = {*sys.modules}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = Request(**json.loads(line))
        if request.modules:
            warm(request.modules)
            print(json.dumps({"warm": len(request.modules)}), flush=True)
        else:
            print(json.dumps(answer(request, scratch, known)), flush=True)


def answer(request: Request, scratch: str, known: set[str]) -> dict[str, Any]:
    out = os.path.join(scratch, f"said-{os.getpid()}")
    for stream in ("out", "err", "count"):
        Path(f"{out}.{stream}").write_bytes(b"")
        os.chmod(f"{out}.{stream}", 0o666)
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        code = BUG
        try:
            code = child(request, out)
            if request.arm is not None:
                modules = [name for name in sys.modules if name not in known and name != "__main__"]
                Path(f"{out}.count").write_text(json.dumps({"counts": counted(), "modules": modules}))
        finally:
            os._exit(code)
    code: int | None = None
    stopped = False
    left = list(request.worker)
    while code is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        passed = time.monotonic() - started
        if done:
            code = os.waitstatus_to_exitcode(status)
        elif passed > request.patience_s:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            code = -99
        elif request.stop_after_s is not None and not stopped and passed > request.stop_after_s:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.1)
            os.kill(pid, signal.SIGCONT)
            stopped = True
        elif left and (worker := worker_of(pid)):
            for name in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, getattr(signal, name))
                time.sleep(0.2)
            left.clear()
        else:
            time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # workers it may have left
    counts = Path(f"{out}.count").read_text()
    return {
        "code": code,
        "out": Path(f"{out}.out").read_text(errors="replace"),
        "err": Path(f"{out}.err").read_text(errors="replace"),
        "seconds": round(time.monotonic() - started, 3),
        **(json.loads(counts) if counts else {"counts": {}, "modules": []}),
    }


def worker_of(pid: int) -> int | None:
    """A worker process that `pid` has started."""
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes():
                return int(each)
    return None


if __name__ == "__main__":
    serve(sys.argv[1])
    sys.stdout.flush()
    os._exit(0)  # without the last words of libraries
