"""Laws of how many nodes are asked for, whatever the use they would be put to."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.elastic.cluster_size import Autoscaler, FirstJobUse

GPUS = 4
shares = st.floats(0.01, 1.0)


@given(
    st.lists(shares, min_size=8, max_size=8),
    st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8)),
    st.tuples(shares, shares).filter(lambda pair: pair[0] != pair[1]),
    st.integers(1, 8 * GPUS),
    st.sampled_from([None, 1, 6, 20]),
)
def test_nodes_follow_their_use(
    uses: list[float],
    counts: tuple[int, int, int],
    limits: tuple[float, float],
    max_replicas: int,
    min_replicas: int | None,
) -> None:
    """More only where they are used too well, fewer only where too badly, and then as near the aim as there is.

    There are never fewer than the job needs at least.
    """
    least, requested, most = sorted(counts)
    fewest = max(least, min(-(-(min_replicas or 1) // GPUS), most))
    aim, above = sorted(limits)
    model = SimpleNamespace(best=lambda count, gpus: (1.0 if gpus == 1 else uses[count - 1] * gpus,))
    nodes = SimpleNamespace(least=least, most=most, requested=requested, gpus=lambda count: GPUS * count)
    job = SimpleNamespace(goodput=model, max_replicas=max_replicas, min_replicas=min_replicas)
    answer = FirstJobUse(above, aim).wanted(SimpleNamespace(jobs=[job]), nodes)
    now = uses[requested - 1]
    if aim <= now <= above:
        assert answer == max(requested, fewest)
        return
    assert answer >= requested if now > above else answer <= max(requested, fewest)
    assert fewest <= answer <= most
    if answer not in (requested, fewest):
        replicas = max(max_replicas, min_replicas or 1)
        allowed = [count for count in range(fewest, most + 1) if GPUS * count <= replicas] or [fewest]
        assert abs(uses[answer - 1] - aim) == min(abs(uses[count - 1] - aim) for count in allowed)


def test_nodes_stay_while_the_agent_knows_nothing() -> None:
    nodes = SimpleNamespace(least=1, most=8, requested=3, gpus=lambda count: GPUS * count)
    job = SimpleNamespace(goodput=None, min_replicas=None)
    view, rule = SimpleNamespace(jobs=[job]), FirstJobUse(2 / 3, 0.5)
    assert rule.wanted(view, nodes) == 3
    job.min_replicas = 4 * GPUS
    assert rule.wanted(view, nodes) == 4


def test_jobs_that_wait_behind_the_first_one_need_no_nodes() -> None:
    cluster = Cluster.elastic(8, 1, GPUS, 0.0, 1.0)
    ends, nodes = [], []
    for behind in ([], [toy_job("b", 0.0, 28, min_replicas=28)]):
        result = simulate(toy_workload(toy_job("a", 0.0, 1), *behind), {"toy": ToyProfile()}, cluster, Autoscaler())
        ends.append(result.job_records[0].completion_time)
        nodes.append([round.nodes for round in result.round_records if round.time < ends[0]])
    assert ends[0] == ends[1]
    assert nodes[0] == nodes[1]
