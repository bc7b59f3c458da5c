"""Runs the table of faults: `python tests/faults/run.py [WORD ...]` runs the cases whose names contain every word, as
many as the clock (FAULTS_MAX_S seconds) or a number (FAULTS_CASES) allows.

After each case: at most one line of error, the right exit code, no traceback, nothing outside touched; then the same
command again gives the bytes of an undisturbed run, and `viewkit verify` finds nothing.
"""

import os
import random
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, SimpleQueue

from server import BUG, Request
from table import Case, table
from world import COMMANDS, Server, SmallDisk, World, build_shim, can_mount, digest_of, fill

SERVERS = 2
MAX_S, MAX_CASES = 600.0, 10**6


def judge(case: Case, world: World, server: Server, folder: Path) -> str | None:
    """What is wrong, in one line; None where all is as it should be."""
    if case.inodes is None:
        return examine(case, world, server, folder)
    with SmallDisk(folder / "small") as disk:
        return examine(case, world, server, disk.folder, disk)


def examine(case: Case, world: World, server: Server, folder: Path, disk: SmallDisk | None = None) -> str | None:
    dataset = folder / case.dataset
    shutil.copytree(world.before[case.command], dataset)
    outside = folder / "outside.txt"
    outside.write_text("nobody touches this")
    if disk is not None:
        disk.leave(case.inodes)
    argv = [*fill(COMMANDS[case.command], world.source, dataset, world.test), *case.more]
    arm = None if case.arm is None else [str(dataset), *case.arm]
    said = server(Request(argv, arm=arm, **case.request))
    if disk is not None:
        disk.leave(None)
    bring_back(dataset)
    lines = [line for line in said["err"].splitlines() if line.startswith("error:")]
    if said["code"] == BUG or "Traceback" in said["err"]:
        return f"traceback: {said['err'].strip().splitlines()[-1] if said['err'].strip() else 'none printed'}"
    if said["code"] not in case.codes:
        return f"exit code {said['code']}, wanted one of {case.codes}: {said['err'].strip()[-200:]}"
    if said["code"] > 0 and 2 not in case.request.get("closed", ()) and len(lines) != 1:
        return f"{len(lines)} lines of error: {said['err'].strip()[-200:]}"
    if outside.read_text() != "nobody touches this" or sorted(path.name for path in folder.iterdir()) != sorted(
        ["outside.txt", dataset.name]
    ):
        return f"something outside was touched: {[path.name for path in folder.iterdir()]}"
    again = server(Request(argv))
    if again["code"] != 0:
        return f"rerun: exit code {again['code']}: {again['err'].strip()[-300:]}"
    found = digest_of(dataset)
    if found != (wanted := world.after[case.command]):
        differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        return f"rerun: other bytes in {', '.join(differing[:4])}"
    checked = server(Request(["verify", str(dataset)]))
    if checked["code"] != 0:
        return f"verify: {checked['err'].strip()[-200:]} {checked['out'].strip()[-200:]}"
    return None


def bring_back(dataset: Path) -> None:
    """Undo that the folder has vanished. What was made in its place in the meantime goes."""
    gone = dataset.with_name(f"{dataset.name}.gone")
    if gone.exists():
        shutil.rmtree(dataset, ignore_errors=True)
        gone.rename(dataset)


def run(
    words: list[str], root: Path, max_s: float = MAX_S, max_cases: int = MAX_CASES
) -> tuple[int, int, dict[str, str], float]:
    """(cases in the table, cases run, failures by case, seconds)."""
    shim = build_shim(root)
    servers = [Server(shim, root / f"said{number}") for number in range(SERVERS)]
    started = time.monotonic()
    world = World.make(root, servers[0])
    for server in servers:
        server(Request([], modules=world.modules))
    cases = [case for case in table(world.counts) if all(word in str(case) for word in words)]
    if (reason := can_mount(root)) is not None:
        print(f"skipped {sum(case.inodes is not None for case in cases)} cases of few inodes: {reason}")
        cases = [case for case in cases if case.inodes is None]
    random.Random(0).shuffle(cases)  # a run that is cut off by the clock has seen every command
    whole, cases = len(cases), cases[:max_cases]
    waiting: SimpleQueue[tuple[int, Case]] = SimpleQueue()
    for item in enumerate(cases):
        waiting.put(item)
    failures: dict[str, str] = {}
    done = Counter[str]()

    def work(server: Server) -> None:
        while time.monotonic() - started < max_s:
            try:
                number, case = waiting.get_nowait()
            except Empty:
                return
            folder = root / f"case{number}"
            folder.mkdir()
            os.chmod(folder, 0o755)
            wrong = judge(case, world, server, folder)
            shutil.rmtree(folder)
            done[case.command] += 1
            if wrong is not None:
                failures[str(case)] = wrong
                print(f"FAILED {case}: {wrong}", flush=True)

    threads = [threading.Thread(target=work, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        server.close()
    return whole, done.total(), failures, time.monotonic() - started


def main(words: list[str]) -> int:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="viewkit-faults-") as root:
        whole, count, failures, seconds = run(
            words,
            Path(root),
            float(os.environ.get("FAULTS_MAX_S", MAX_S)),
            int(os.environ.get("FAULTS_CASES", MAX_CASES)),
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = (used.ru_utime + used.ru_stime) / max(count, 1)
    print(
        f"faults: {count} of {whole} cases in {seconds:.0f} s ({used_s:.2f} s of a processor each, start included), "
        f"{len(failures)} failed"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
