import json

import pytest
import torch
from torch import nn

from viewkit.pipelines.engine.contract import Run
from viewkit.pipelines.losses.info_nce import symmetric_info_nce
from viewkit.pipelines.pairs.source import ViewBatch
from viewkit.pipelines.training import loop
from viewkit.pipelines.training.framework import Framework, Outputs
from viewkit.pipelines.training.loop import CHECKPOINT, METRICS, Window, train
from viewkit.pipelines.training.metrics import read_metrics
from viewkit.pipelines.training.monitoring import MetricsLog, Monitoring
from viewkit.pipelines.training.optimisers import create_optimiser
from viewkit.pipelines.training.schedules import Schedule
from viewkit.pipelines.training.step import Stepper
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import DataError, RefusedError

TIMES = ("images_per_s", "wait_share", "render_share")


class Toy(Framework):
    """A linear map with batch norm under InfoNCE. after: the step at which it fails, and how."""

    def __init__(self, spoil=None):
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.BatchNorm1d(8))
        self.spoil = spoil

    @property
    def encoder(self):
        raise NotImplementedError

    def encode(self, views):
        return (self.network(views),)

    def project(self, encoded, target):
        q = encoded[0]
        return Outputs(z=torch.ones_like(q) if self.spoil == "collapse" else q, query=q, key=q.detach())

    def pair_losses(self, one, other):
        if self.spoil == "kill" and self.step == 23:
            raise KeyboardInterrupt
        losses = symmetric_info_nce(one.query, other.query, one.key, other.key, 0.2)
        return losses * float("nan") if self.spoil == "nan" and self.step >= 12 else losses


class Batches:
    steps_per_epoch = 7

    def epoch(self, epoch, start_step=0):
        for step in range(start_step, 7):
            generator = torch.Generator().manual_seed(100 * epoch + step)
            views1, views2 = torch.randn(2, 6, 3, 2, 2, generator=generator)
            yield ViewBatch((views1, views2), None, {"missing_views": step % 2}, wait_s=0.0, render_s=0.0)


def train_toy(folder, spoil=None, steps=40, owner=None, precision="fp32", **options):
    folder.mkdir(exist_ok=True)
    toy = Toy(spoil)
    run = Run(dataset=Dataset(folder), folder=folder, stage="pretrain")
    schedule = Schedule(steps=steps, warmup_steps=5, peak_lr=0.05, precision=precision)
    optimiser = create_optimiser("adamw", toy.groups(0.1))
    last = train(toy, optimiser, Batches(), schedule, run, owner or {"name": "toy"}, monitoring=Monitoring(**options))
    return toy, last


def timeless(path):
    return [{name: value for name, value in line.items() if name not in TIMES} for line in read_metrics(path)]


@pytest.mark.parametrize(("checkpoint_s", "precision"), [(0.0, "fp32"), (1e9, "fp32"), (0.0, "fp16")])
def test_a_killed_and_resumed_training_equals_an_undisturbed_one_bit_by_bit(tmp_path, checkpoint_s, precision):
    whole, _ = train_toy(tmp_path / "whole", precision=precision)
    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path / "killed", spoil="kill", checkpoint_s=checkpoint_s, precision=precision)
    assert (tmp_path / "killed" / CHECKPOINT).is_file() == (checkpoint_s == 0)
    resumed, _ = train_toy(tmp_path / "killed", precision=precision)
    assert timeless(tmp_path / "killed" / METRICS) == timeless(tmp_path / "whole" / METRICS)
    for ours, theirs in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_metrics_say_what_happened(tmp_path):
    _, last = train_toy(tmp_path, steps=24)
    lines = read_metrics(tmp_path / METRICS)
    assert [line["step"] for line in lines] == [10, 20, 24]
    assert lines[1]["epoch"] == pytest.approx(20 / 7)
    assert [line["missing_views"] for line in lines] == [4, 5, 1]
    assert lines[-1] == last and lines[-1]["lr"] == Schedule(steps=24, warmup_steps=5, peak_lr=0.05).lr(23)
    assert 0 < last["spread"] < 1.2 and last["loss"] < lines[0]["loss"]


def test_numbers_of_all_processes_are_shared_on_the_device_of_the_loss():
    """NCCL takes tensors of the GPU alone; a stand-in for "another device than the loss" is torch's default one."""
    toy, batch = Toy(), next(Batches().epoch(0))
    toy.step = 2
    window = Window(0)
    window.add(toy.loss(batch.views).detach(), batch)
    with torch.device("meta"):
        line = window.line(toy, 7, Schedule(steps=4, warmup_steps=0, peak_lr=0.1))
    assert line["loss"] == float(window.losses[0]) and line["spread"] == toy.spread()


def test_a_finished_training_is_not_trained_further(tmp_path):
    first, numbers = train_toy(tmp_path)
    before = (tmp_path / METRICS).read_bytes()
    again, same_numbers = train_toy(tmp_path)
    assert same_numbers == numbers and "loss" in numbers
    assert torch.equal(first.network[1].weight, again.network[1].weight)
    assert (tmp_path / METRICS).read_bytes() == before


def test_a_loss_that_is_not_finite_stops_with_advice_and_leaves_the_last_good_checkpoint(tmp_path):
    with pytest.raises(DataError, match=r"pretrain: step 20: the loss is nan.*lower --lr"):
        train_toy(tmp_path, spoil="nan", checkpoint_s=0.0)
    toy, _ = train_toy(tmp_path, steps=40)
    assert toy.step == 40 and all(line["loss"] is not None for line in read_metrics(tmp_path / METRICS))


def test_collapsed_outputs_stop_with_advice(tmp_path):
    with pytest.raises(DataError, match=r"step 30: the outputs have collapsed.*lower --lr"):
        train_toy(tmp_path, spoil="collapse")


def test_the_checkpoint_of_another_training_is_refused(tmp_path):
    train_toy(tmp_path)
    with pytest.raises(RefusedError, match="name was toy, is other"):
        train_toy(tmp_path, owner={"name": "other"})


def test_the_spread_is_one_on_the_sphere_and_zero_at_a_point():
    toy = Toy()
    toy.watched = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    assert toy.spread() == pytest.approx(1, abs=0.02)
    toy.watched = torch.ones(8, 16)
    assert toy.spread() == pytest.approx(0, abs=1e-6)


def test_a_torn_line_and_lines_beyond_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / METRICS
    lines = [{"step": 10, "loss": 1.0}, {"step": 20, "loss": 0.5}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 30, "lo')
    log = MetricsLog(path, resume_at=10)
    log.append({"step": 20, "loss": float("nan")})
    assert read_metrics(path) == [{"step": 10, "loss": 1.0}, {"step": 20, "loss": None}]


def test_bf16_is_autocast_of_the_loss_alone(tmp_path):
    toy = Toy()
    seen = []
    toy.network[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    optimiser = create_optimiser("sgd", toy.groups(0.0))
    batch = next(Batches().epoch(0))
    schedule = Schedule(steps=10, warmup_steps=0, peak_lr=0.1, precision="bf16")
    assert loop.train_step(toy, optimiser, batch, schedule, Stepper.make("cpu", "bf16")).dtype == torch.float32
    assert seen == [torch.bfloat16] * 2 and toy.network[1].weight.dtype == torch.float32


def test_a_probe_is_asked_at_its_steps_whether_resumed_or_not(tmp_path):
    def probe(toy):
        toy.eval()
        return {"knn_top1": toy.step / 100}

    whole, _ = train_toy(tmp_path / "whole", probe=probe, probe_steps=7)
    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path / "killed", spoil="kill", checkpoint_s=0.0, probe=probe, probe_steps=7)
    train_toy(tmp_path / "killed", probe=probe, probe_steps=7)
    lines = timeless(tmp_path / "whole" / METRICS)
    assert [line["step"] for line in lines] == [7, 10, 14, 20, 21, 28, 30, 35, 40]
    assert [line.get("knn_top1") for line in lines] == [0.07, None, 0.14, None, 0.21, 0.28, None, 0.35, None]
    assert timeless(tmp_path / "killed" / METRICS) == lines and whole.training


def test_tensorboard_gets_the_numbers_of_metrics_jsonl(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_toy(tmp_path, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    written = {point.step: point.value for point in events.Scalars("loss")}
    assert written == pytest.approx({line["step"]: line["loss"] for line in read_metrics(tmp_path / METRICS)})


def test_weight_decay_goes_along_half_a_cosine_where_it_is_told_to():
    toy = Toy()
    optimiser = create_optimiser("sgd", toy.groups(0.04))
    batch = next(Batches().epoch(0))
    schedule = Schedule(steps=10, warmup_steps=0, peak_lr=0.1, weight_decay=(0.04, 0.4))
    toy.step = 5
    loop.train_step(toy, optimiser, batch, schedule, Stepper.make("cpu"))
    decays = [group["weight_decay"] for group in optimiser.param_groups]
    assert decays == [pytest.approx(0.22), 0.0]
    assert schedule.decay(0) == pytest.approx(0.04) and schedule.decay(10) == pytest.approx(0.4)
