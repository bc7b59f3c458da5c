"""Memory of a running job: this process with its workers, and its GPUs. Imports no torch."""

import os
import resource
import sys
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")


def memory_bytes() -> int:
    """Resident memory of this process and of those it started; where there is no /proc its own highest so far."""
    if not (PROC / "self" / "statm").is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return sum(_resident(each) for each in _family(os.getpid()))


def _family(process: int) -> list[int]:
    found = [process]
    for path in (PROC / str(process) / "task").glob("*/children"):
        found += [member for child in _read(path).split() for member in _family(int(child))]
    return found


def _resident(process: int) -> int:
    numbers = _read(PROC / str(process) / "statm").split()
    return int(numbers[1]) * PAGE if len(numbers) > 1 else 0


def _read(path: Path) -> str:
    """Nothing, of a process that has ended since."""
    try:
        return path.read_text()
    except OSError:
        return ""


def gpu_bytes() -> int | None:
    """The highest memory that torch has held on this process's GPUs; None while it has used none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return sum(int(torch.cuda.max_memory_allocated(index)) for index in range(torch.cuda.device_count()))


def size_text(count: float) -> str:
    """Bytes for people: 12 B, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
