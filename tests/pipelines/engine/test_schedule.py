"""The scheduler of a cluster, in simulated time: known makespans, and what becomes of deaths, stragglers and nodes."""

import random

import pytest
from simulated_cluster import SimulatedNode, simulate

from viewkit.pipelines.engine.schedule import Drop, Give, Limits, Schedule, Start
from viewkit.shards.errors import DataError

NO_COPIES = Limits(copies=1)


def test_equal_workers_take_as_long_as_their_share():
    found = simulate(range(24), {"a": SimulatedNode(seats=2), "b": SimulatedNode(seats=1)}, NO_COPIES)
    assert found.seconds == 1 + 24 / 3 * 10
    assert sorted(found.done) == list(range(24)) and len(found.given) == 24


def test_a_device_twice_as_fast_does_twice_as_many():
    nodes = {"fast": SimulatedNode(seconds=5), "slow": SimulatedNode(seconds=10)}
    found = simulate(range(30), nodes, NO_COPIES)
    assert found.by_node == {"fast": 20, "slow": 10} and found.seconds == 1 + 100


def test_shards_are_handed_out_in_order():
    found = simulate(range(5, 12), {"a": SimulatedNode(seats=2)}, NO_COPIES)
    assert [shard for shard, _, _ in found.given] == list(range(5, 12))


def test_the_last_shard_of_a_slow_device_is_done_by_another():
    nodes = {"fast": SimulatedNode(seconds=1), "slow": SimulatedNode(seconds=1000)}
    assert simulate(range(10), nodes, NO_COPIES).seconds == 1001
    found = simulate(range(10), nodes)
    assert found.seconds == 1 + 9 + 1  # nine by the fast one, then the slow one's
    assert [shard for shard, _, _ in found.given].count(1) == 2 and sorted(found.done) == list(range(10))


def test_a_shard_is_in_at_most_two_hands_and_the_one_begun_first_comes_first():
    schedule = Schedule([0, 1], Limits())
    schedule.nodes({"a": 2})
    assert schedule.actions(0) == [Start(0, "a"), Start(1, "a")]
    schedule.ready(0)
    assert schedule.actions(1) == [Give(0, 0)]
    schedule.ready(1)
    assert schedule.actions(2) == [Give(1, 1)]
    schedule.done(1)
    assert schedule.actions(3) == [Give(1, 0)]  # the other's
    assert schedule.done(0) == 0 and not schedule.undone
    assert schedule.done(1) is None  # second, and nothing to tell
    assert schedule.actions(4) == []


def test_no_more_workers_than_shards_or_than_were_asked_for():
    assert simulate(range(3), {"a": SimulatedNode(seats=64)}).most_workers == 3
    assert simulate(range(90), {"a": SimulatedNode(seats=64)}, Limits(workers=7)).most_workers == 7


def test_workers_are_spread_over_the_nodes():
    schedule = Schedule(range(100), Limits(workers=6))
    schedule.nodes({"a": 4, "b": 4, "c": 1})
    nodes = [action.node for action in schedule.actions(0)]
    assert sorted(nodes) == ["a", "a", "a", "b", "b", "b"] or sorted(nodes).count("c") == 1
    assert max(nodes.count(name) for name in "ab") <= 3


def test_a_worker_that_dies_once_costs_its_shard_again_and_nothing_else():
    killed = []

    def dies(shard, node):
        killed.append(shard)
        return shard == 3 and killed.count(3) == 1

    found = simulate(range(8), {"a": SimulatedNode()}, NO_COPIES, dies=dies)
    assert [shard for shard, _, _ in found.given] == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert found.seconds == 1 + 3 * 10 + 5 + 1 + 5 * 10  # half a shard lost, and one start


def test_a_shard_that_kills_three_workers_is_named_and_was_never_in_two_hands():
    schedule = Schedule([7], Limits())
    schedule.nodes({"a": 2})
    with pytest.raises(
        DataError, match=r"^shard 000007: its worker died 3 times \(the last: exit code 137\), probably"
    ):
        for now in range(10):
            for action in schedule.actions(now):
                if isinstance(action, Start):
                    schedule.ready(action.worker)
                else:
                    schedule.died(action.worker, now, "exit code 137")
    assert now == 5  # a start, a hand-out, a death, three times


def test_a_node_that_goes_does_not_count_against_its_shard():
    nodes = {str(place): SimulatedNode(until_s=5 + 10 * place, from_s=10 * place) for place in range(6)}
    nodes["last"] = SimulatedNode(from_s=100)
    found = simulate([0], nodes, look_s=10)
    assert [node for _, _, node in found.given] == ["0", "1", "2", "3", "4", "5", "last"]


def test_a_stage_that_always_dies_ends_before_all_shards_are_tried():
    with pytest.raises(DataError, match="its worker died 3 times"):
        simulate(range(1000), {"a": SimulatedNode(seats=2)}, dies=lambda shard, node: True)


def never_starts(nodes):
    """Times of the starts, and what ends the job."""
    schedule, now, starts = Schedule(range(100), Limits()), 0, []
    schedule.nodes(nodes)
    with pytest.raises(DataError) as ended:
        while True:
            for action in schedule.actions(now):
                starts.append(now)
                schedule.died(action.worker, now, "no module 'viewkit'")
            now += 1
    return starts, str(ended.value)


def test_workers_that_never_start_end_the_job_with_the_reason():
    starts, said = never_starts({"a": 1, "b": 1, "c": 1})
    assert said.startswith("8 workers were lost in a row and no shard was finished in between (the last: no module")
    assert starts == [0, 0, 0, 5, 5, 5, 15, 15]


def test_a_node_on_which_no_worker_starts_is_left_alone_for_longer_and_longer():
    starts, said = never_starts({"a": 1})
    assert said.startswith("no worker is left, and 100 shards are not done (the last: no module 'viewkit'); see to")
    assert starts == [0, 5, 15, 35, 75]  # the next would be at 155, and a minute without anybody is enough


def test_as_many_deaths_as_there_are_workers_do_not_end_the_job():
    schedule = Schedule(range(1000), Limits())
    schedule.nodes({"rack": 64})
    for action in schedule.actions(0):
        schedule.ready(action.worker)
    for action in schedule.actions(1):
        schedule.died(action.worker, 1, "preempted", with_node=True)
    assert not schedule.crew and len(schedule.undone) == 1000
    schedule.nodes({"rack": 64})
    assert len(schedule.actions(2)) == 64


def test_a_node_that_comes_later_is_used_from_the_next_look_on():
    nodes = {"a": SimulatedNode(), "b": SimulatedNode(from_s=61, seats=3, start_s=0.5)}
    found = simulate(range(100), nodes, NO_COPIES)
    first = next(place for place, (_, _, node) in enumerate(found.given) if node == "b")
    assert first == 12 and found.by_node["b"] > 60  # a look a minute: at 120 s, 12 shards of a's


def test_a_lost_node_is_left_for_the_others():
    nodes = {"a": SimulatedNode(until_s=45), "b": SimulatedNode()}
    found = simulate(range(20), nodes, NO_COPIES)
    assert sorted(found.done) == list(range(20)) and found.by_node == {"a": 4, "b": 16}


def test_nobody_left_is_one_line_after_a_minute():
    nodes = {"a": SimulatedNode(until_s=45)}
    with pytest.raises(DataError, match=r"^no worker is left, and 16 shards are not done \(the last: killed\); see to"):
        simulate(range(20), nodes, NO_COPIES, look_s=10)


def test_a_node_that_does_not_see_the_dataset_is_left_out():
    nodes = {"blind": SimulatedNode(seats=4, unfit=True), "b": SimulatedNode()}
    found = simulate(range(20), nodes, NO_COPIES)
    assert found.by_node == {"b": 20}


def test_no_node_that_sees_the_dataset_ends_the_job_at_once():
    with pytest.raises(DataError, match=r"no worker is left, and 20 .*\(the last: it does not see the dataset\)"):
        simulate(range(20), {"a": SimulatedNode(unfit=True, seats=2), "b": SimulatedNode(unfit=True)})


def test_a_worker_that_does_not_answer_is_dropped():
    schedule = Schedule([0], Limits(start_s=30))
    schedule.nodes({"a": 1})
    assert schedule.actions(0) == [Start(0, "a")] and schedule.actions(29) == []
    assert schedule.actions(30) == [Drop(0)] and schedule.actions(35) == [Start(1, "a")]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_shard_is_done_exactly_once(seed):
    draw = random.Random(seed)
    nodes = {
        str(place): SimulatedNode(
            seats=draw.randint(1, 4), seconds=draw.uniform(1, 20), spread=1.0,
            from_s=draw.uniform(0, 100), until_s=draw.uniform(100, 400),
        )
        for place in range(8)
    }  # fmt: skip
    nodes["stays"] = SimulatedNode()
    found = simulate(
        range(300), nodes, Limits(deaths=10), dies=lambda shard, node: draw.random() < 0.05, look_s=20, seed=seed
    )
    assert sorted(found.done) == list(range(300))


def test_hundreds_of_workers_are_kept_at_work():
    nodes = {str(place): SimulatedNode(seats=8, seconds=60, spread=0.5) for place in range(50)}
    found = simulate(range(1600), nodes)
    assert found.most_workers == 400 and found.seconds < 1600 * 75 / 400 + 60  # one shard more at most


def test_a_shard_is_not_given_twice_in_one_moment():
    schedule = Schedule([0], Limits(workers=2))
    schedule.nodes({"a": 2})
    schedule.undone.add(1)  # so that two workers start
    schedule.actions(0)
    schedule.undone.discard(1)
    for worker in (0, 1):
        schedule.ready(worker)
    assert schedule.actions(1) == [Give(0, 0)]
    assert schedule.actions(2) == [Give(1, 0)]  # a straggler by now
