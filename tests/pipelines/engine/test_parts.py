"""Parts of a fit: who does them, how often models are loaded, and what is said when a worker is lost."""

import re
from dataclasses import replace

import pytest
from small_datasets import contents, numbers_dataset
from toy_stages import CountsConfig, CountsStage, TotalStage

from viewkit.pipelines.engine.contract import Silent
from viewkit.pipelines.engine.execution import Devices, Execution, Spread
from viewkit.pipelines.engine.parts import PARTS, Together, devices_of_fit, spreads, workers_of_fit
from viewkit.pipelines.engine.run import plan_stage, run_stage
from viewkit.pipelines.engine.schedule import Give, Limits, Schedule, Start
from viewkit.pipelines.engine.units import Unit
from viewkit.shards.errors import ConfigError, DataError

HERE = Spread(device="cpu")


class Heard(Silent):
    def __init__(self):
        self.said, self.total, self.done = [], 0, 0

    def start(self, stage, total, unit, done=0):
        self.total = total

    def advance(self, count, **numbers):
        self.done += count

    def message(self, text):
        self.said.append(text)


@pytest.fixture
def dataset(tmp_path):
    return numbers_dataset(tmp_path / "data", rows=40)


def test_one_process_loads_once_for_both_passes_and_reports_what_it_does(dataset):
    heard, stage = Heard(), CountsStage()
    numbers = run_stage(stage, CountsConfig(), dataset, HERE, heard).numbers
    column = dataset.column("images")
    sizes = [len(column.fields(place)["bin"]) for place in range(column.num_rows)]
    assert numbers == {"total": sum(sizes), "larger": sum(size > sum(sizes) / len(sizes) for size in sizes)}
    assert heard.total == heard.done == 2 * len(sizes)
    assert stage.loads == 1 and heard.said == ["loaded"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_processes_of_one_machine_load_once_each_and_give_the_same_bytes(dataset, tmp_path, workers):
    run_stage(CountsStage(), CountsConfig(), dataset, HERE)
    other, heard = numbers_dataset(tmp_path / "other", rows=40), Heard()
    run_stage(CountsStage(pause_s=0.3), CountsConfig(), other, Spread(device="cpu", workers=workers), heard)
    assert contents(other.path / "counts") == contents(dataset.path / "counts")
    assert heard.said == ["loaded"] * workers and heard.done == heard.total


@pytest.mark.slow
def test_a_process_that_dies_over_a_part_is_replaced_and_one_that_always_does_ends_the_fit(dataset, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    two = Spread(device="cpu", workers=2)
    with pytest.raises(DataError) as ended:
        run_stage(CountsStage(deaths, times=99), CountsConfig(), dataset, two)
    assert re.fullmatch(
        r"part \d of the fit: its worker process died 2 times \(last exit code -9\), probably for want of memory; "
        "run the same command with fewer processes",
        str(ended.value),
    )
    assert not (dataset.path / "counts").exists()
    for death in deaths.iterdir():
        death.unlink()
    run_stage(CountsStage(deaths, times=1), CountsConfig(), dataset, two)
    assert len(list(deaths.iterdir())) == 1


def test_a_single_part_needs_no_other_process(dataset):
    stage = CountsStage()
    run_stage(stage, CountsConfig(at_once=100), dataset, Spread(device="cpu", workers=3))
    assert stage.loads == 1  # in this process, once for both passes


def test_parts_of_a_second_pass_have_numbers_of_their_own_and_are_told_by_their_places():
    asked = []

    class Backwards:
        def do(self, units):
            asked.append(list(units))
            return ((unit.number, unit.task.upper()) for unit in reversed(units))

    crew = Together(Backwards())
    assert list(crew.do(["a", "b"])) == [(1, "B"), (0, "A")]
    assert list(crew.do(["c"])) == [(0, "C")] and list(crew.do(["d"])) == [(0, "D")]
    assert asked == [[Unit(0, "a"), Unit(1, "b")], [Unit(2, "c")], [Unit(3, "d")]]


def test_workers_of_a_cluster_stay_for_what_comes_later():
    schedule = Schedule([], Limits(), PARTS)
    schedule.more([0])
    schedule.nodes({"a": 1})
    assert schedule.actions(0) == [Start(0, "a")]
    schedule.ready(0)
    assert schedule.actions(1) == [Give(0, 0)] and schedule.done(0) == 0 and not schedule.undone
    schedule.more([1, 2])
    assert schedule.actions(2) == [Give(0, 1)] and schedule.done(0) == 1
    assert schedule.actions(3) == [Give(0, 2)] and schedule.done(0) == 2 and not schedule.undone


def test_of_a_fit_nothing_is_said_to_be_kept():
    schedule = Schedule([7], Limits(deaths=1), PARTS)
    schedule.nodes({"a": 1})
    schedule.actions(0)
    schedule.ready(0)
    schedule.actions(1)
    with pytest.raises(DataError, match=r"^part 7 of the fit: its worker died 1 times .*; give a worker more of it$"):
        schedule.died(0, 1, "killed")
    with pytest.raises(
        DataError, match=r"^no worker is left, and 1 parts are .* run the same command again, it starts this stage over"
    ):
        for now in (2, 100):
            schedule.nodes({})
            schedule.actions(now)


@pytest.mark.parametrize(
    ("execution", "devices", "workers"),
    [
        (Spread(), ["cpu"], 1),
        (Spread(workers=3), ["cpu"], 3),
        (Spread(), ["cuda:0", "cuda:1"], 2),
        (Spread(workers=1), ["cuda:0", "cuda:1"], 1),
        (Execution(workers=3), ["cpu"], 1),  # of a column that waits for the fit; threads compute it
        (Execution(), ["cuda:0", "cuda:1"], 2),
        (Execution(workers=1), ["cuda:0", "cuda:1"], 1),
        (Devices(), ["cuda:0", "cuda:1"], 1),
    ],
)
def test_as_many_processes_as_gpus_and_on_a_cpu_one_unless_more_are_asked_for(execution, devices, workers):
    assert workers_of_fit(CountsStage(), execution, devices) == workers


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "--workers is 0; it must lie in 1 ..."),
        ({"on": "rya"}, "--on is 'rya'; it is here, ray (the cluster it finds) or ray://HOST:PORT"),
        ({"on": "ray", "device": "cuda:0"}, "with --on ray it is auto, cpu or cuda: Ray says which GPU is free"),
        ({"on": "ray", "profile": "p.json"}, "--profile and --on ray do not go together"),
    ],
)
def test_options_that_make_no_sense_are_refused_as_for_columns(options, said):
    for kind in (Spread, Execution):
        with pytest.raises(ConfigError) as refused:
            kind(**options)
        assert said in str(refused.value)


def test_a_column_s_options_and_those_of_a_whole_chain_reach_its_fits():
    assert spreads(CountsStage(), Execution(on="ray")) and spreads(CountsStage(), Spread(on="ray://head:10001"))
    assert not spreads(CountsStage(), Execution()) and not spreads(TotalStage(), Execution(on="ray"))


def test_a_stage_without_parts_stays_where_it_is(dataset):
    whole = CountsStage()
    whole.in_parts = False
    assert devices_of_fit(whole, Spread(device="cpu", on="ray")) == ["cpu"]
    assert workers_of_fit(whole, Spread(workers=3), ["cpu"]) == 1


def test_the_estimate_is_shared_by_the_workers(dataset):
    alone = plan_stage(CountsStage(), CountsConfig(), dataset, HERE)
    shared = plan_stage(CountsStage(), CountsConfig(), dataset, replace(HERE, workers=4))
    assert alone["estimated_s"] == 10.0 and "workers" not in alone
    assert (shared["estimated_s"], shared["workers"]) == (2.5, 4)
