"""The presets against the papers: numbers, what their notes offer, and two steps of each."""

import re
import shlex
from math import isfinite
from pathlib import Path
from types import SimpleNamespace

import pytest
from timm.models import is_model
from tiny_chain import CPU, make, photographs

from viewkit.cli.options import option_name
from viewkit.pipelines.engine.config import fields_of, make_config
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.models.architectures import RESNETS
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.pretrain.pairs import views_policy
from viewkit.pipelines.pretrain.presets import preset_options, presets
from viewkit.pipelines.pretrain.stage import PretrainStage
from viewkit.pipelines.training.monitoring import read_metrics
from viewkit.pipelines.views.policies import load_policy
from viewkit.shards.dataset import Dataset

ROOT = Path(__file__).parents[3]
NAMES = list(presets())
FIELDS = {option_name(field.name): field for field in fields_of(PretrainConfig)}


def config_of(name, **changes):
    return make_config(PretrainConfig, {**preset_options(name), **changes}, name)


def values_of(name, **changes):
    """Every option's value in a run with the preset; None for those of other frameworks."""
    values = resolve(config_of(name, **changes)).values()
    return SimpleNamespace(**{field.name: values.get(field.name) for field in FIELDS.values()})


def parsed(words):
    """(preset or None, changes) of a piece of a command line, as notes have it."""
    words, preset, changes = shlex.split(words), None, {}
    while words:
        option = words.pop(0)
        if option == "--preset":
            preset = words.pop(0)
        elif (field := FIELDS[option]).kind is bool:
            changes[field.name] = True
        elif words:  # an option that is only named has no value
            changes[field.name] = field.kind(words.pop(0))
    return preset, changes


def offered(note):
    """What a note offers on the command line of pretrain."""
    return [parsed(words) for words in re.findall(r"`(--[^`]*)`", note) if words != "--rounds"]


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_is_a_config_with_a_title_and_a_source(name):
    preset, config = presets()[name], resolve(config_of(name))
    assert preset.title.strip() and re.match(r"(HVS|DSF|GenView|JointCrop), ", preset.source)
    assert all(" ".join(note.split()) == note for note in (preset.title, preset.source, *preset.notes))
    assert is_model(config.arch) or config.arch in RESNETS
    assert config.side_px == load_policy(config.policy).side_px
    if not config.selection.stored:
        views_policy(config)


@pytest.mark.parametrize("name", NAMES)
def test_notes_offer_only_what_exists_and_name_the_baseline(name):
    notes = presets()[name].notes
    for preset, changes in [each for note in notes for each in offered(note)]:
        config_of(preset or name, **changes)
    baselines = [note for note in notes if note.startswith("Baseline")]
    assert len(baselines) == 1
    if baselines[0].startswith("Baseline of"):
        return
    preset, changes = offered(baselines[0])[0]
    baseline = values_of(preset or name, **changes)
    assert baseline != values_of(name)
    assert (baseline.select, baseline.weights, baseline.alpha) == ("random", "none", 0.0)
    assert (baseline.multi_view, baseline.views_per_side) == ("loss_avg", 1)
    assert baseline.joint_area is None and not load_policy(baseline.policy).joint


@pytest.mark.parametrize(
    ("name", "epochs", "batch_size", "rate"),
    [
        ("hvs-dino", 100, 512, 1e-3),
        ("hvs-dino-r50", 100, 512, 1e-3),
        ("hvs-simsiam", 100, 512, 0.1),
        ("hvs-simclr", 100, 4096, 4.8),
        ("dsf-cifar10", 250, 256, 0.06),
        ("dsf-cifar10-baseline", 800, 1024, 0.12),
        ("dsf-imagenet100", 100, 128, 2.5e-3),
    ],
)
def test_epochs_batch_and_learning_rate_of_the_whole_batch_are_the_papers(name, epochs, batch_size, rate):
    config = values_of(name)
    assert (config.epochs, config.batch_size) == (epochs, batch_size)
    assert config.lr * config.batch_size / 256 == pytest.approx(rate)


def test_hvs_dino_is_table_7():
    for config, arch in ((values_of("hvs-dino"), "vit_small_patch16_224"), (values_of("hvs-dino-r50"), "resnet50")):
        assert (config.framework, config.arch, config.select, config.comparisons) == ("dino", arch, "hard", 128)
        assert (config.optimiser, config.weight_decay, config.weight_decay_end) == ("adamw", 0.04, 0.4)
        assert (config.momentum, config.teacher_tau, config.teacher_tau_start) == (0.996, 0.04, 0.04)
        assert (config.teacher_warmup_epochs, config.last_freeze_epochs, config.warmup_epochs) == (0.0, 1.0, 10.0)
        assert config.dim == 65_536
        specs = load_policy(config.policy).views
        areas = ((0.4, 1.0), (0.05, 0.4)) if arch.startswith("vit") else ((0.14, 1.0), (0.05, 0.14))
        assert (specs[0].area, specs[2].area, specs[2].side_px, len(specs)) == (*areas, 96, 2 + 8)
        assert (config.clip, config.lr_end, config.norm_last) == (3.0, 1e-6, True)


def test_dsf_and_its_baselines_cost_the_same_views():
    for name in ("dsf-cifar10", "dsf-imagenet100"):
        dsf, baseline = values_of(name), values_of(f"{name}-baseline")
        assert dsf.batch_size * dsf.views_per_side == baseline.batch_size
        assert (dsf.multi_view, dsf.dsf_shrink, dsf.dsf_exact, dsf.views_per_side) == ("dsf", 0.95, False, 4)
        assert dsf.policy == baseline.policy
    config = values_of("dsf-cifar10")
    assert (config.queue_length, config.momentum, config.dim, config.bn_splits) == (4096, 0.99, 128, 8)
    assert (config.weight_decay, config.symmetric) == (5e-4, False)
    config = values_of("dsf-imagenet100")
    assert (config.weight_decay, config.momentum, config.dim, config.warmup_epochs) == (0.1, 0.99, 256, 15.0)


def test_presets_named_by_docs_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.name, name)
        for page in pages
        for name in re.findall(r"viewkit pretrain[^\n]*--preset ([a-z][a-z0-9-]*)", page.read_text())
    }
    assert not [(page, name) for page, name in sorted(named) if name not in NAMES]


SMALL = {
    "batch_size": 8, "steps": 2, "warmup_epochs": 0.0, "hidden": 16, "dim": 16, "queue_length": 16, "bn_splits": 2,
    "prototypes": 8, "bottleneck": 8, "comparisons": 6, "views_per_side": 2,
}  # fmt: skip


def small(name):
    """The preset on a small backbone of the same kind, with everything that has a size made small."""
    config = values_of(name)
    changes = {key: value for key, value in SMALL.items() if getattr(config, key) not in (None, 0, 1)}
    if config.select == "stored":
        changes["other_policy"] = True  # the pairs that are there are those of all presets
    vit = config.arch.startswith("vit")
    side_px = 16 if not vit else 56 if config.framework == "dino" else 32  # 56 and its 24 are whole patches of 8
    arch = "vit_pico_patch8" if vit else "resnet10_narrow"
    return config_of(name, **changes | {"steps": 2, "warmup_epochs": 0.0, "arch": arch, "side_px": side_px})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Labelled images with every column that a preset reads."""
    folder = tmp_path_factory.mktemp("presets")
    dataset = Dataset(folder / "d")
    make(photographs(folder / "photographs"), dataset)
    return dataset


QUICK = ("dsf-cifar10", "hvs-dino")
"""Multi-view, multi-crop: the others are trained with the slow tests."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_every_preset_trains(dataset, name):
    config = small(name)
    summary = run_stage(PretrainStage(name), config, dataset, CPU)
    assert summary.numbers["steps"] == 2
    lines = read_metrics(dataset.path / "runs" / name / "metrics.jsonl")
    assert lines[-1]["step"] == 2 and isfinite(lines[-1]["loss"])
