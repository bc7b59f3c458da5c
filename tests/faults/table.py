"""The table of cases: which fault, at which place, during which command, and what must hold afterwards."""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from world import COMMANDS

ERRORS: Mapping[str, tuple[int, ...]] = {
    "write": (errno.ENOSPC, errno.EIO, errno.EDQUOT),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "rename": (errno.ENOSPC, errno.EACCES, errno.EIO),
    "link": (errno.ENOSPC, errno.EACCES, errno.EMLINK),
    "mkdir": (errno.ENOSPC, errno.EACCES, errno.EDQUOT),
    "open": (errno.EMFILE, errno.EACCES, errno.ENOSPC),
    "map": (errno.ENOMEM, errno.EACCES),
    "truncate": (errno.ENOSPC, errno.EIO),
    "unlink": (errno.EACCES, errno.EIO),
    "read": (errno.EIO,),
}
"""How an operation fails; its places take these in turn."""
KILLED = ("write", "fsync", "rename", "link", "mkdir", "open")
"""Operations before and after which the process is killed."""
VANISHES = ("write", "rename", "open")
"""Operations at which the dataset's folder is moved away."""
MAX_PLACES = 12
"""Places of one operation in one command, evenly spread where there are more."""


@dataclass(frozen=True)
class Case:
    """One command under one fault. arm: (kind, place, mode, errno) for the shim. request: more fields of `Request`.

    codes: exit codes that are right. more: options added to the command. inodes: files that can still be made in the
    file system of the dataset, then a small one of its own; None: any number.
    """

    command: str
    name: str
    arm: tuple[str, int, str, int] | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    codes: tuple[int, ...] = (0, 1)
    dataset: str = "data"
    more: tuple[str, ...] = ()
    inodes: int | None = None

    def __str__(self) -> str:
        return f"{self.command}: {self.name}"


def places(count: int) -> list[int]:
    """Up to `MAX_PLACES` of 1 ... count, the first and the last among them."""
    if count <= MAX_PLACES:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (MAX_PLACES - 1)) for step in range(MAX_PLACES)})


def injected(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Case]:
    """Every operation of every command failing once, cut short, and being the moment of a kill."""
    for command, found in counts.items():
        for kind, errors in ERRORS.items():
            for turn, place in enumerate(places(found.get(kind, 0))):
                error = errors[turn % len(errors)]
                yield Case(command, f"{kind} {place}: {errno.errorcode[error]}", (kind, place, "fail", error))
                if kind == "write":
                    yield Case(command, f"write {place} cut short", (kind, place, "short", errno.ENOSPC))
                if kind in VANISHES and turn % 2 == 0:
                    yield Case(command, f"{kind} {place}: the folder vanishes", (kind, place, "vanish", 0))
                if kind in KILLED:
                    for mode in ("kill_before", "kill_after"):
                        yield Case(command, f"{kind} {place}: {mode}", (kind, place, mode, 0), codes=(-9, 0, 1))


ODD_NAMES = ("with space", "quote'\"quote", "line\nbreak", "-dash", "é中", "n" * 200, "semi;colon$(x)", "\udcff\udcfe")
"""Names of a dataset's folder; the last is not UTF-8."""


def surroundings() -> Iterator[Case]:
    """Odd paths, other locales, no home, limits, streams that are closed or full."""
    for command in COMMANDS:
        yield Case(command, "no HOME", request={"environment": {"HOME": None, "XDG_CACHE_HOME": None}}, codes=(0,))
        yield Case(command, "LANG=C", request={"environment": {"LANG": "C", "LC_ALL": "C"}}, codes=(0,))
        yield Case(command, "LC_ALL=tr_TR.UTF-8", request={"environment": {"LC_ALL": "tr_TR.UTF-8"}}, codes=(0,))
        yield Case(command, "closed stdout", request={"closed": [1]})
        yield Case(command, "closed stderr", request={"closed": [2]})
        yield Case(command, "no terminal, no input", request={"closed": [0]}, codes=(0,))
        yield Case(command, "ulimit -n 24", request={"limits": {"nofile": 24}})
        yield Case(command, "ulimit -f 4 KiB", request={"limits": {"fsize": 4096}})
        yield Case(command, "another user, nothing may be written", request={"user": 65534}, codes=(1, 3))
        yield Case(command, "stopped and continued", request={"stop_after_s": 0.1}, codes=(0,))
        for left in (0, 1, 2, 5):
            yield Case(command, f"{left} inodes left", inodes=left)
        for memory_mib in (0, 2, 16):
            yield Case(command, f"ulimit -v: {memory_mib} MiB more", request={"memory_mib": memory_mib})
        for name in ODD_NAMES:
            yield Case(command, f"dataset {ascii(name)[:24]}", dataset=name, codes=(0,))


def workers() -> Iterator[Case]:
    """What befalls a worker process. Of one stage: each is a new interpreter, whatever runs in it."""
    two = ("--workers", "2")
    for after_s in (0.0, 0.1):
        for signals in (
            ["SIGSTOP", "SIGCONT"],
            ["SIGKILL"],
            ["SIGSTOP", "SIGKILL"],
            ["SIGINT"],
            ["SIGHUP"],
            ["SIGTERM"],
        ):
            request = {"worker": signals, **({"stop_after_s": after_s} if after_s else {})}
            name = f"a worker gets {' and '.join(signals)}{', the parent is stopped' if after_s else ''}"
            yield Case("pack", name, request=request, codes=(0,), more=two)


def table(counts: Mapping[str, Mapping[str, int]]) -> list[Case]:
    return [*injected(counts), *surroundings(), *workers()]
