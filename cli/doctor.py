"""What this machine can do: the findings of `viewkit doctor`, one screen.

Nothing here imports torch: it and torchvision are tried in a process of their own, so that an installation too broken
to be imported is a finding like any other. The rest is imported where it is used, for `viewkit --help` reads this file.
"""

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from viewkit.cli.console import print_json
from viewkit.cli.parts import gpu_part, missing_parts

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from rich.console import Console

State = Literal["ok", "note", "problem"]
STYLES: dict[State, str] = {"ok": "green", "note": "yellow", "problem": "bold red"}

SHOWN = (
    ("torch", "torchvision", "timm"),
    ("diffusers", "transformers", "open_clip_torch"),
    ("webdataset", "pillow", "simplejpeg", "numpy"),
)
"""Packages whose versions are shown, a line each; of the others only what is missing or too old."""

FREE_GB = 1.0
PROBE_TIMEOUT_S = 120.0

# Runs in a process of its own. A line for every answer, so that what came before a crash is not lost.
PROBE = """
import json, time

def say(**facts):
    print(json.dumps(facts), flush=True)

def seconds(a, count=5):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return sorted(times)[count // 2]

import torch
say(torch=torch.__version__, cuda=torch.version.cuda, threads=torch.get_num_threads())
devices = []
for i in range(torch.cuda.device_count()):
    facts = torch.cuda.get_device_properties(i)
    devices.append([f"cuda:{i}", facts.name, facts.total_memory, torch.cuda.is_bf16_supported()])
if torch.backends.mps.is_available():
    devices.append(["mps", "Apple GPU", torch.mps.recommended_max_memory(), True])
say(devices=devices)
say(float32_s=seconds(torch.ones(768, 768)), bfloat16_s=seconds(torch.ones(768, 768, dtype=torch.bfloat16)))
import torchvision
from torchvision.ops import nms
nms(torch.tensor([[0., 0., 1., 1.]]), torch.tensor([1.]), 0.5)
say(torchvision=torchvision.__version__)
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the screen. state: ``problem`` means that viewkit does not work here until `advice` is followed."""

    name: str
    value: str
    state: State = "ok"
    advice: str = ""


def doctor(
    folder: Annotated[Path, typer.Argument(help="where datasets are to be written", metavar="[FOLDER]")] = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What this machine can do: versions, devices, decoders, free disk; exit code 1 if viewkit cannot work here."""
    findings = diagnose(folder)
    if as_json:
        print_json({"usable": not exit_code(findings), "findings": [asdict(finding) for finding in findings]})
    else:
        show(findings)
    raise typer.Exit(exit_code(findings))


def diagnose(folder: Path | None = None) -> list[Finding]:
    """Look at everything; takes a few seconds, most of them the import of torch.

    folder: where datasets are to be written; by default the working folder.
    """
    return [
        *find_versions(),
        *find_devices(run_probe()),
        find_jpeg_decoders(),
        find_renderer(),
        *find_missing(),
        find_disk(folder or Path.cwd()),
        find_temporary(),
    ]


def exit_code(findings: list[Finding]) -> int:
    """0 if viewkit is usable on this machine, else 1."""
    return int(any(finding.state == "problem" for finding in findings))


def show(findings: list[Finding], console: "Console | None" = None) -> None:
    """Print the findings, with the next step below every one that is not as it should be."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = Text(finding.value)
        if finding.advice:
            text.append(f"\n-> {finding.advice}", style=STYLES[finding.state])
        table.add_row(Text(finding.state, style=STYLES[finding.state]), finding.name, text)
    (console or Console()).print(table)


def find_versions() -> Iterator[Finding]:
    """viewkit, Python and the packages it runs on, against the versions that it requires."""
    yield Finding("viewkit", f"{installed('viewkit') or 'not installed'}, Python {platform.python_version()}")
    wrong = []
    for requirement in required():
        found = installed(requirement.name)
        if found is None:
            wrong.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found} is not {requirement.specifier}")
    for names in SHOWN:
        yield Finding(names[0], ", ".join(f"{name} {installed(name) or 'missing'}" for name in names))
    if wrong:
        yield Finding(
            "packages", "; ".join(wrong), "problem", "run 'pip install --upgrade .', where viewkit's source is"
        )


def required(extra: str = "") -> list["Requirement"]:
    """What viewkit's metadata requires on this machine: of itself, or in addition for one extra."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        lines = requires("viewkit") or []
    except PackageNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        for_extra = marker is not None and not always and marker.evaluate({"extra": extra})
        if for_extra if extra else always:
            found.append(requirement)
    return found


def installed(name: str) -> str | None:
    """Version of an installed distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def run_probe(program: str = PROBE, timeout_s: float = PROBE_TIMEOUT_S) -> dict[str, Any]:
    """What the probe said before it ended, and as ``error`` the last line of what went wrong, if anything."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=timeout_s, errors="replace"
        )
        output, complaint, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        complaint, code = f"no answer within {timeout_s:.0f} s", 1
    facts: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            facts |= json.loads(line)
    if code != 0:
        lines = complaint.strip().splitlines()
        facts["error"] = lines[-1] if lines else f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return facts


def find_devices(probe: dict[str, Any]) -> Iterator[Finding]:
    """CPU, accelerators, bfloat16 and whether torchvision matches torch, from the answers of the probe."""
    cores, total = usable_cores(), os.cpu_count()
    value = f"{cores:g} of {total} cores, {memory_gb():.1f} GB memory"
    if "float32_s" in probe:
        ratio = probe["float32_s"] / max(probe["bfloat16_s"], 1e-9)
        value += f"; bfloat16 products run at {ratio:.1f}x the rate of float32"
    yield Finding("CPU", value)
    for name, model, memory, bfloat16 in probe.get("devices", []):
        half = "with" if bfloat16 else "without"
        yield Finding(name, f"{model}, {memory / 2**30:.0f} GiB, {half} bfloat16")
    if "devices" in probe and not probe["devices"]:
        part = gpu_part(probe["torch"], probe.get("cuda"))
        yield Finding(part.name, part.value, "note", part.advice)
    if "torch" not in probe:
        yield Finding(
            "torch",
            f"cannot be imported: {probe.get('error', 'no answer')}",
            "problem",
            "reinstall it: pip install --force-reinstall torch torchvision",
        )
    elif "torchvision" not in probe:
        yield Finding(
            "torchvision",
            f"does not work with torch {probe['torch']}: {probe.get('error', 'no answer')}",
            "problem",
            "install the two as a pair from one index: pip install --upgrade --force-reinstall torch torchvision",
        )
    else:
        yield Finding("torchvision", f"{probe['torchvision']} works with torch {probe['torch']}")


def usable_cores() -> float:
    """Cores that this process may use: its affinity, and a container's limit if there is one."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    words = read_words(Path("/sys/fs/cgroup/cpu.max"))
    if len(words) == 2 and words[0].isdigit():
        cores = min(cores, int(words[0]) / int(words[1]))
    return cores


def memory_gb() -> float:
    """Memory that this process may use, in 10^9 bytes: the machine's, or a container's limit if that is lower."""
    limits = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limits += [int(word) for word in read_words(Path("/sys/fs/cgroup/memory.max")) if word.isdigit()]
    return min(limits, default=0) / 1e9


def read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def find_jpeg_decoders() -> Finding:
    """Whether simplejpeg and Pillow are there and give the same pixels."""
    try:
        import numpy as np
        import simplejpeg
        from PIL import Image
    except ImportError as error:
        return Finding("JPEG", f"a decoder is missing: {error}", "problem", "run 'pip install simplejpeg pillow numpy'")
    y, x = np.mgrid[0:96, 0:128]
    pixels = np.stack([x * 2, y * 2, (x * y) % 256], axis=2).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=90)
    ours = simplejpeg.decode_jpeg(stream.getvalue(), colorspace="RGB", fastdct=False, fastupsample=False)
    theirs = np.asarray(Image.open(stream).convert("RGB"))
    if not np.array_equal(ours, theirs):
        gap = int(np.abs(ours.astype(int) - theirs.astype(int)).max())
        advice = "'pack' would re-encode most JPEGs; install the pinned versions of constraints.txt"
        return Finding("JPEG", f"simplejpeg and Pillow differ by up to {gap} of 255", "problem", advice)
    return Finding("JPEG", "simplejpeg and Pillow decode to the same pixels")


def find_renderer() -> Finding:
    """Whether views on a CPU are rendered by the compiled kernels. Without them everything works, only slower."""
    from viewkit.pipelines.engine.renderer import REMEDY, VARIABLE, chosen_library, find_library
    from viewkit.shards.errors import ConfigError

    try:
        chosen = chosen_library()
    except ConfigError as error:
        return Finding("renderer", str(error), "problem", f"unset {VARIABLE}, or follow the message")
    if chosen is not None:
        return Finding("renderer", "views on a CPU are rendered by the compiled kernels")
    reason = find_library()
    if isinstance(reason, str):
        value = f"views on a CPU are rendered by torch's operations; the compiled kernels: {reason}"
        return Finding("renderer", value, "note", f"for faster views: {REMEDY}")
    return Finding("renderer", f"views on a CPU are rendered by torch's operations, as {VARIABLE} says")


def find_missing() -> Iterator[Finding]:
    """Optional parts that are not there; nothing of the rest needs them."""
    try:
        extras = metadata("viewkit").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        extras = []
    lacking = {extra: [one.name for one in required(extra) if installed(one.name) is None] for extra in extras}
    for part in missing_parts(lacking):
        yield Finding(part.name, part.value, "note", part.advice)


def find_disk(folder: Path) -> Finding:
    """Free space where datasets are to be written."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:  # a dataset that is yet to be made lies on its parent's disk
        there = there.parent
    try:
        free_gb = shutil.disk_usage(there).free / 1e9
    except OSError as error:
        return Finding("disk", f"{folder}: {error.strerror}", "problem", "give a folder that can be read")
    value = f"{free_gb:.1f} GB free in {there}"
    if not os.access(there, os.W_OK):
        return Finding("disk", f"{there} is not writable", "note", "write datasets elsewhere")
    if free_gb < FREE_GB:
        return Finding(
            "disk", value, "note", "a dataset takes about the space of its images; make room or go elsewhere"
        )
    return Finding("disk", value)


def find_temporary() -> Finding:
    """Whether temporary files can be written."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(4096))
            file.flush()
        return Finding("temporary", f"{tempfile.gettempdir()} is writable")
    except OSError as error:
        return Finding("temporary", f"no temporary file: {error}", "problem", "set TMPDIR to a writable folder")
