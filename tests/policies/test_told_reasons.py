"""The sentence about a job is true, in small worlds whose right answer is worked out by hand."""

from __future__ import annotations

import pytest
from drawn import Listed
from toy import toy_job, toy_workload

from polluxsim.checks.worlds import PROFILES
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved, Leftovers
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.hardware.gpu_types import GPU_TYPES, NodeTypes
from polluxsim.hardware.hosts import Host
from polluxsim.look.why.sentences import sentence
from polluxsim.models.stages import Stages
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.deadlines.elasticflow import ElasticEdf, ElasticFlow
from polluxsim.policies.elastic.cluster_size import Autoscaler
from polluxsim.policies.elastic.true_times import Afs, EffectiveScaling, Optimus, Proportional
from polluxsim.policies.ordered.attained_service import LeastAttainedService, TiresiasL
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.sharing.antman import AntMan
from polluxsim.policies.sharing.gandiva import Gandiva
from polluxsim.policies.sharing.muri import Muri
from polluxsim.policies.sia.policy import Sia
from polluxsim.policies.sized.shockwave import Shockwave
from polluxsim.policies.sized.themis import Themis
from polluxsim.policies.tenants.fairness import DominantResourceFairness, FairQueues
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.policies.typed.gangs_by_type import Hadar, Venn
from polluxsim.policies.typed.rounds import RoundsOfShares
from polluxsim.policies.typed.rules import MaxMin
from polluxsim.workloads.workload import Job

TWO_TYPES = Cluster((2, 4), node_types=NodeTypes([GPU_TYPES["t4"], GPU_TYPES["v100"]]))
OUTAGE = Cluster((4, 4), failures=Listed((Outage((1,), 0.0, 2000.0, "test"),)))

QUEUE = {"first": 2, "wide": 4, "small": 1}  # GPUs of the jobs of a queue


def told(
    policy: Policy, cluster: Cluster, *jobs: Job, sharing: Leftovers | None = None
) -> dict[tuple[str, float], str]:
    """Return the sentence about each job at each round [s]."""
    rules = EngineSettings(restart_delay=0.0, reasons="rounds", horizon=3000.0, sharing=sharing or Interleaved())
    result = simulate(toy_workload(*jobs), PROFILES, cluster, policy, settings=rules)
    return {(record.job, record.time): sentence(record, result.reason_texts) for record in result.reason_records}


@pytest.mark.parametrize("policy", [Srtf(), Hadar(), RoundsOfShares(MaxMin())], ids=["srtf", "hadar", "max-min"])
def test_gpus_of_a_type_that_a_job_cannot_use_are_not_left_for_it(policy: Policy) -> None:
    """Job a has both T4s. Three V100s are idle, on which job b cannot run."""
    old = [Job.rigid(name, 0.0, 2, 600.0 + 10 * order, gpu_types=("t4",)) for order, name in enumerate("ab")]
    new = [Job.rigid(name, 0.0, 1, 60.0, gpu_types=("v100",)) for name in "cde"]
    said = told(policy, TWO_TYPES, *old, *new)["b", 60.0]
    assert "needs 2 GPUs at once. When its turn comes, no GPU is left" in said
    assert "its other types" not in said


def test_the_head_of_the_line_misses_gpus_of_its_type() -> None:
    jobs = Job.rigid("a", 0.0, 1, 600.0, gpu_types=("t4",)), Job.rigid("b", 0.0, 2, 600.0, gpu_types=("t4",))
    said = told(Fifo(), TWO_TYPES, *jobs, Job.rigid("c", 0.0, 1, 60.0, gpu_types=("t4",)))
    assert "b, ahead of it, needs 2 GPUs, and 1 GPU is left of type t4." in said["c", 60.0]


def test_no_job_runs_on_for_want_of_preemption_under_quotas() -> None:
    """Queue x owns 2 of its 4 GPUs until job b takes back those of its own queue."""
    jobs = Job.rigid("a", 0.0, 4, 600.0, queue="x"), Job.rigid("b", 130.0, 2, 300.0, queue="y")
    said = told(Quotas({"x": 2, "y": 2}), Cluster.uniform(1, 4), *jobs, Job.rigid("c", 200.0, 4, 300.0, queue="x"))
    assert said["a", 60.0].startswith(
        "The job gets the 4 GPUs that it needs, and its queue borrows what exceeds its quota."
    )
    assert said["b", 240.0].startswith("The job keeps its GPUs, because no job preempts it. Its queue now holds 2 GPUs")


def test_a_job_that_takes_gpus_by_fair_sharing_is_not_said_to_be_within_its_quota() -> None:
    jobs = [Job.rigid(name, 0.0, 2, 600.0, queue="x") for name in ("a", "b")]
    said = told(Quotas(fair_sharing=True), Cluster.uniform(1, 4), *jobs, Job.rigid("c", 130.0, 2, 300.0, queue="y"))
    assert "the queue of c is within its quota or, with fair sharing, borrows less" in said["b", 180.0]


def test_a_minimum_is_the_reason_if_a_gpu_is_left() -> None:
    """Two jobs have 2 of the 5 GPUs each. The sixth job also needs 2."""
    said = told(Optimus(), Cluster.uniform(1, 5), *(toy_job(name, gpus=2, min_replicas=2) for name in "abcdef"))
    assert (
        said["f", 60.0]
        == "Only 1 GPU is left for the job. It needs at least 2, so it waits. The policy first gives each job its "
        "fewest GPUs, in order of submission. The nearest jobs ahead that get theirs: b and a."
    )


def test_the_limit_of_a_user_is_not_said_to_be_that_of_the_batch_size() -> None:
    said = told(Optimus(), Cluster.uniform(1, 5), toy_job("a", gpus=2, max_replicas=2))
    assert said["a", 60.0] == "The job has 2 GPUs, the most that its user and its agent allow now."


def test_a_job_that_wins_no_gpu_has_nothing_left_on_its_gpus() -> None:
    said = told(Afs(), Cluster.uniform(1, 4), Job.rigid("a", 0.0, 4, 600.0), Job.rigid("b", 0.0, 4, 300.0))
    assert "This job has won no GPU. On the fewest that it can use, 4, it would end in 0:10:00." in said["a", 60.0]


def test_a_job_that_is_rejected_with_another_is_said_so() -> None:
    jobs = Job.rigid("a", 0.0, 1, 600.0, deadline=2000.0), Job.rigid("b", 0.0, 1, 3000.0, deadline=1000.0)
    said = told(ElasticFlow(together=True), Cluster.uniform(1, 4), *jobs)["a", 60.0]
    assert "no plan meets its deadline at 0:33:20, those of b, which are admitted only together with it," in said


def test_a_job_wider_than_the_nodes_that_are_up_has_no_planned_end() -> None:
    said = told(ElasticFlow(), OUTAGE, Job.rigid("a", 60.0, 8, 300.0, deadline=1500.0))
    assert said["a", 60.0] == "The policy rejects the job, because it needs more GPUs than are up."


def test_a_minimum_beyond_the_gpus_that_are_up_is_no_limit_of_the_job() -> None:
    said = told(Pollux(), OUTAGE, toy_job("a", 60.0, gpus=6, min_replicas=6))
    assert said["a", 60.0] == "Only 4 GPUs are left for the job. It needs at least 6, so it waits."


def test_a_preempted_job_is_told_the_job_that_takes_its_gpus() -> None:
    """Job a keeps its V100, and c takes that of b. T4s are idle, but too slow for b to move."""
    speeds = (("t4", 1.0), ("v100", 3.0))
    jobs = [
        Job.rigid(name, submit_time, 1, 3000.0, deadline=deadline, type_speeds=speeds)
        for name, submit_time, deadline in (("a", 0.0, 1e4), ("b", 0.0, 1e5), ("c", 130.0, 2e4))
    ]
    cluster = Cluster((2, 2), node_types=NodeTypes([GPU_TYPES["v100"], GPU_TYPES["t4"]]))
    said = told(ElasticEdf(), cluster, *jobs)["b", 180.0]
    assert said.startswith("c takes the GPUs of this job. GPUs of another type are idle, and the job may move there")


def test_a_job_behind_one_of_its_queue_is_not_said_to_lack_gpus() -> None:
    """Two GPUs are idle. Job small needs one, and must not overtake wide."""
    jobs = [Job.rigid(name, order, gpus, 600.0, queue="x") for order, (name, gpus) in enumerate(QUEUE.items())]
    said = told(DominantResourceFairness(), Cluster.uniform(1, 4), *jobs)
    assert said["wide", 60.0].startswith("The job needs 4 GPUs. After the starts of this round, 2 GPUs are free")
    assert said["small", 60.0].startswith("The job needs 1 GPU, and waits behind wide, the next job of the same queue")


def test_a_job_that_fits_on_no_node_is_not_said_to_wait_for_others() -> None:
    cluster = Cluster((4,), hosts=(Host(16.0, 64.0),))
    said = told(DominantResourceFairness(), cluster, Job.rigid("a", 0.0, 1, 600.0, cpus=100.0))["a", 60.0]
    assert said.startswith("The policy rejects the job: it needs 1 GPU with 100 CPUs and 25 % of all memory, and")


def test_a_policy_of_one_type_says_which_type_it_decides_about() -> None:
    """Each type has a backfill of its own. Job b runs on T4s only, and job a has both."""
    jobs = [Job.rigid(name, 0.0, 2, 600.0, gpu_types=("t4",)) for name in "ab"]
    said = told(Easy(), TWO_TYPES, *jobs)["b", 60.0]
    assert "needs 2 GPUs, and no GPU is left" in said
    assert said.endswith(
        "decides about each GPU type on its own: this is about the 2 GPUs of type t4. The job fits on no other type "
        "that it may use."
    )


def test_a_job_of_one_type_is_told_why_it_joined_this_type() -> None:
    """The V100s are three times as fast. Job b is the third GPU requested for each two of them."""
    speeds = (("t4", 1.0), ("v100", 3.0))
    jobs = [Job.rigid(name, 0.0, gpus, 600.0, type_speeds=speeds) for name, gpus in (("a", 4), ("b", 2))]
    said = told(Easy(), TWO_TYPES, *jobs)["b", 60.0]
    assert said.endswith(
        "The job joined this type at its submission. The policy divides the speed on a type by the GPUs that jobs "
        "request for each of its GPUs (at least 1), and takes the largest. The speed here was 3 times that on t4, and "
        "jobs requested 1.5 GPUs for each GPU here and 1 there."
    )


@pytest.mark.parametrize("policy", [Srtf(), RoundsOfShares(MaxMin()), Muri()], ids=["srtf", "max-min", "muri-s"])
def test_a_job_whose_only_type_is_down_is_not_said_to_wait_for_other_jobs(policy: Policy) -> None:
    down = Listed((Outage((0,), 0.0, 2000.0, "test"),))
    cluster = Cluster((2, 4), node_types=TWO_TYPES.node_types, failures=down)
    jobs = Job.rigid("a", 0.0, 1, 600.0, gpu_types=("v100",)), Job.rigid("b", 0.0, 1, 600.0, gpu_types=("t4",))
    said = told(policy, cluster, *jobs)["b", 60.0].lower()
    assert "no node of any type that it can use is available now" in said
    assert "ahead" not in said


def test_a_job_wider_than_the_nodes_that_are_up_has_no_reservation() -> None:
    said = told(Easy(), OUTAGE, Job.rigid("a", 60.0, 8, 300.0))["a", 60.0]
    assert said.endswith(
        "It needs 8 GPUs, and 4 GPUs are left of the 4 that are available now. It is the first job that has to wait. "
        "The policy cannot reserve GPUs for it yet, because the nodes that are available now cannot hold it, even "
        "after all other jobs have ended."
    )


def test_a_waiting_job_of_a_queue_is_told_when_it_entered_the_queue() -> None:
    said = told(TiresiasL(), Cluster.uniform(1, 1), Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 30.0, 1, 60.0))
    assert "Otherwise jobs stay in the order in which they entered it, this job at 0:00:30." in said["b", 60.0]


def test_a_job_that_borrows_is_told_its_place_among_those_that_borrow() -> None:
    jobs = Job.rigid("a", 0.0, 4, 600.0, queue="x", priority=2.0), Job.rigid("b", 0.0, 4, 600.0, queue="y")
    said = told(Quotas(), Cluster.uniform(1, 4), *jobs)["a", 60.0]
    assert said.endswith(
        "Of the next jobs of all queues, those within quotas go first, then those that borrow, in both cases by "
        "priority, then by submission. This job has priority 2, and was submitted at 0:00:00."
    )


def test_a_job_with_gpus_is_compared_with_the_best_waiting_job() -> None:
    """Both need all GPUs. Job b has 2400 s to run, job a only 600 s."""
    jobs = Job.rigid("a", 0.0, 4, 600.0), Job.rigid("b", 0.0, 4, 2400.0)
    said = told(Hadar(), Cluster.uniform(1, 4), *jobs)["a", 60.0]
    assert "Its utility for each GPU is 1.36 per hour." in said
    assert "Of the waiting jobs, b has the largest utility for each GPU, 0.366 per hour, and needs 4 GPUs." in said
    said = told(Sia(), Cluster.uniform(1, 4), *jobs)["a", 60.0]
    assert "This job lowers the sum of the costs of all jobs, which the policy minimises, by 0.10." in said
    assert "Of the waiting jobs, b would lower it most, by 0.10 with 4 GPUs" in said


def test_a_job_that_awaits_its_turn_is_compared_with_the_jobs_ahead() -> None:
    """Job c attains less time than a and b, which need as many GPUs as it."""
    jobs = [Job.rigid(name, order, 4, 600.0) for order, name in enumerate("abc")]
    said = told(Gandiva(packing=False), Cluster.uniform(1, 4), *jobs)["c", 60.0]
    assert "The nearest job ahead of it that runs is a, with 0:00:00 counted. The jobs that run in this" in said
    said = told(Gandiva(), OUTAGE, Job.rigid("a", 60.0, 8, 300.0))["a", 60.0]
    assert said.endswith("Now at most 4 of a type that it can use are available, so it waits for more nodes.")


def test_a_job_of_one_type_is_the_only_one_of_its_type_without_a_lease() -> None:
    jobs = [Job.rigid(name, 0.0, 2, 600.0, gpu_types=(of,)) for name, of in (("a", "t4"), ("b", "v100"))]
    assert "to this job, the only one of this type without a lease" in told(Themis(), TWO_TYPES, *jobs)["a", 60.0]


def test_gpus_that_are_down_are_not_said_to_be_taken() -> None:
    said = told(Optimus(), OUTAGE, toy_job("a", 60.0, 8, min_replicas=8))["a", 60.0]
    assert said.startswith("Only 4 GPUs are available now. The job needs at least 8, so it waits.")


def test_a_job_that_least_attained_service_puts_back_is_told_its_quanta() -> None:
    """Job b attains a quantum of 60 GPU s, so job a goes first for a quantum."""
    jobs = [Job.rigid(name, 0.0, 1, 600.0) for name in "ab"]
    said = told(LeastAttainedService(60.0), Cluster.uniform(1, 1), *jobs)["a", 120.0]
    assert "with 1 whole quantum of 0.0167 GPU-hours attained (0.0167 GPU-hours in all)" in said


def test_a_job_that_hadar_asks_late_is_told_what_the_order_goes_by() -> None:
    """Three jobs want the only GPU. The shortest has the largest utility."""
    jobs = [Job.rigid(name, 0.0, 1, time) for name, time in (("a", 600.0), ("b", 540.0), ("c", 300.0))]
    said = told(Hadar(), Cluster.uniform(1, 1), *jobs)["b", 60.0]
    assert "in the order of the policy, by the utility per GPU, the largest first, this job with 6 per hour. It" in said


def test_a_job_without_a_share_is_told_when_shares_are_computed_again() -> None:
    """Shares are computed at 60 s, before job b arrives."""
    jobs = Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 100.0, 1, 600.0)
    said = told(RoundsOfShares(MaxMin()), Cluster.uniform(1, 1), *jobs)["b", 120.0]
    assert "It has no share of the time yet, because it arrived after the policy last computed shares." in said
    assert "The policy computes them again at 0:17:40 or later." in said


def test_gpus_that_are_not_available_are_not_said_to_be_taken() -> None:
    said = told(Srtf(), OUTAGE, Job.rigid("a", 0.0, 6, 600.0))["a", 60.0]
    assert "It needs 6 GPUs at once. When its turn comes, 4 GPUs are left of the 4 that are available now." in said


def test_a_job_that_runs_ahead_of_a_shorter_one_is_told_that_all_fit() -> None:
    jobs = Job.rigid("long", 0.0, 1, 600.0), Job.rigid("short", 100.0, 1, 60.0)
    said = told(Srtf(), Cluster.uniform(1, 2), *jobs)["short", 120.0]
    assert "(all jobs request no more GPUs than are up, so running jobs go first), the least time left" in said


def test_a_multifactor_priority_is_the_sum_of_its_parts() -> None:
    jobs = Job.rigid("a", 0.0, 1, 600.0, priority=1.0), Job.rigid("b", 0.0, 1, 600.0, priority=0.5)
    said = told(Multifactor(max_age=600.0), Cluster.uniform(1, 1), *jobs)["b", 60.0]
    assert "first, this job with 10600: 10000 by the fair share of its user, 500 by its own priority, 100 by" in said


def test_a_job_of_a_loaded_queue_is_told_the_time_that_its_running_jobs_count() -> None:
    """Job a, ahead of job b, counts for an hour."""
    jobs = Job.rigid("a", 0.0, 1, 600.0, queue="x"), Job.rigid("b", 0.0, 1, 600.0, queue="x")
    said = told(FairQueues(), Cluster.uniform(1, 1), *jobs)["b", 60.0]
    assert (
        "Its queue has used 0 GPU-hours per unit of weight, and counts 1 at the turn of this job: each of its running"
        in said
    )


def test_a_job_that_gains_nothing_by_another_gpu_is_told_its_times() -> None:
    said = told(Optimus(), Cluster((3, 3, 4, 4)), toy_job("a", 0.0, 12, "slow"))["a", 60.0]
    assert said == (
        "The job has 2 GPUs and would end in 0:00:33 with them. With one more, it would end no earlier, in 0:00:33, so "
        "the policy gives it no more."
    )


def test_the_only_job_without_a_lease_is_said_to_be_the_only_one() -> None:
    said = told(Themis(), Cluster.uniform(1, 4), Job.rigid("a", 0.0, 2, 600.0))["a", 60.0]
    assert said.startswith("The policy offers 4 GPUs to this job, the only one without a lease, and it bids.")


def test_a_job_with_one_number_of_gpus_is_not_told_a_speedup() -> None:
    said = told(EffectiveScaling(), Cluster.uniform(1, 4), Job.rigid("a", 0.0, 2, 600.0))["a", 60.0]
    assert said.endswith("This job has 2 GPUs, the fewest and the most that it may have now.")


def test_gpus_that_are_up_are_not_denied_to_a_job_that_needs_more_than_are_up() -> None:
    reasons = told(RoundsOfShares(MaxMin()), OUTAGE, toy_job("wide", 0.0, 8))
    first = reasons["wide", min(time for _, time in reasons)]
    assert "needs 8 GPUs at once. When its turn comes, 4 GPUs are left" in first


@pytest.mark.parametrize("submitted", [0.0, 30.0])
def test_a_job_behind_the_only_one_is_told_what_that_one_uses(submitted: float) -> None:
    said = told(Autoscaler(), Cluster.uniform(1, 4), toy_job("a", gpus=4), toy_job("b", submitted, 4))["b", 60.0]
    if submitted:
        assert "a comes first: it was submitted at 0:00:00, and this job at 0:00:30." in said
    else:
        assert "a comes first: both were submitted at 0:00:00, and it is earlier in the list." in said
    assert (
        "a runs on 1 GPU, the most that its agent allows now, by the batch size or by the GPUs that it has tried"
        in said
    )
    assert said.endswith("So this job waits, although 3 GPUs are free.")


def test_a_request_is_compared_with_those_of_the_jobs_that_run_or_wait() -> None:
    jobs = Job.rigid("a", 0.0, 2, 60.0), Job.rigid("b", 0.0, 2, 600.0), Job.rigid("c", 0.0, 4, 600.0)
    said = told(Proportional(), Cluster.uniform(1, 4), *jobs)
    assert "which come to 8 GPUs for the 3 jobs that run or wait." in said["c", 60.0]


def test_a_job_whose_fewest_gpus_are_all_that_are_up_is_said_to_have_them() -> None:
    said = told(Optimus(), Cluster.uniform(1, 1), toy_job("a"), toy_job("b"))["a", 60.0]
    assert (
        "number 1 of the 2 that run or wait now. It takes its fewest, 1 GPU, which is the only GPU that is up." in said
    )
    assert "The last free one" not in said


def test_a_job_that_needs_several_gpus_is_told_the_turn_that_left_too_few() -> None:
    wide = Job.rigid("wide", 0.0, 4, 300.0)
    narrow = [Job.rigid(name, 0.0, 1, 120.0 + 60 * order) for order, name in enumerate("abc")]
    said = told(Afs(), Cluster.uniform(1, 4), wide, *narrow)["wide", 60.0]
    assert "from the turn on at which 1 GPU of 4 went to a, which would end in 0:02:00 with it." in said


def test_a_job_that_backfill_makes_wait_is_counted_among_the_waiting_jobs() -> None:
    jobs = Job.rigid("a", 0.0, 3, 600.0), Job.rigid("b", 70.0, 3, 60.0)
    said = told(Easy(), Cluster.uniform(1, 4), *jobs)["b", 120.0]
    assert said.startswith(
        "The job is number 1 of the waiting jobs in the order of the policy, by submission, this job"
    )


def test_a_job_that_waits_is_told_what_the_job_ahead_has_left() -> None:
    said = told(Srtf(), Cluster.uniform(1, 4), Job.rigid("a", 0.0, 3, 300.0), Job.rigid("b", 0.0, 3, 600.0))
    assert said["b", 60.0].endswith("The nearest jobs ahead of it that get GPUs: a. a has 0:05:00 left to run.")


def test_a_job_with_as_much_time_as_the_one_ahead_is_told_what_that_one_lacked() -> None:
    jobs = [Job.rigid(name, 0.0, 4, 2000.0) for name in ("a", "b")]
    said = told(RoundsOfShares(MaxMin()), Cluster.uniform(1, 4), *jobs)["b", 60.0]
    assert said.endswith("a has had 0:00:30, and lacked none before.")


def test_a_pack_that_waits_is_not_said_to_lack_gpus_of_other_types() -> None:
    jobs = Job.rigid("a", 0.0, 4, 300.0, gpu_types=("v100",)), Job.rigid("b", 0.0, 4, 600.0)
    said = told(Muri(), TWO_TYPES, *jobs)
    assert (
        "no GPU is left in the count of any type that has enough GPUs for it, and this job needs 4" in said["b", 60.0]
    )


def test_a_job_that_no_plan_admits_is_told_when_it_would_end_beside_the_others() -> None:
    jobs = Job.rigid("a", 0.0, 4, 500.0, deadline=600.0), Job.rigid("b", 0.0, 4, 300.0, deadline=700.0)
    said = told(ElasticFlow(), Cluster.uniform(1, 4), *jobs)["b", 60.0]
    assert "Alone on the 4 GPUs that are up, it would be complete at 0:06:00." in said
    assert said.endswith("Beside the plans of the 1 admitted job (a), it would be complete at 0:15:00 at the earliest.")


def test_a_queue_with_enough_quota_is_not_said_to_stop_its_job() -> None:
    jobs = Job.rigid("a", 0.0, 3, 600.0, queue="x"), Job.rigid("b", 70.0, 3, 300.0, queue="y")
    said = told(Quotas({"x": 3}), OUTAGE, *jobs)["b", 120.0]
    assert said.endswith("So its queue may take enough, but too few GPUs are idle.")


def test_of_equal_jobs_the_later_one_gets_the_next_gpu() -> None:
    jobs = Job.rigid("a", 0.0, 4, 300.0), Job.rigid("b", 0.0, 4, 300.0)
    said = told(Afs(), Cluster.uniform(1, 4), *jobs)["a", 60.0]
    assert "the one that ends sooner (at equal times, the later in the list of jobs)" in said
    assert said.endswith("The last 4 went to b, which would end in 0:05:00 with them.")


def test_a_job_under_venn_is_told_which_job_ahead_has_how_much_left() -> None:
    jobs = Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 0.0, 1, 1000.0)
    said = told(Venn(), Cluster.uniform(1, 1), *jobs)["b", 60.0]
    assert "the fewest GPU-hours left to run first, this job with 0.278. Jobs with equal GPU-hours go by" in said
    assert said.endswith("The nearest jobs ahead of it that get GPUs: a. a has 0.167 GPU-hours left to run.")


def test_a_job_with_a_guarantee_is_told_who_has_the_node_that_is_large_enough() -> None:
    """The GPUs of the small nodes have no job with a guarantee, but they are not enough."""
    jobs = Job.rigid("first", 0.0, 4, 600.0), Job.rigid("second", 0.0, 3, 600.0)
    said = told(AntMan(), Cluster((1, 4, 1)), *jobs, sharing=Leftovers())["second", 60.0]
    assert "the only node with so many GPUs, no GPU is free for it. Jobs that hold or keep GPUs there: first." in said


def test_a_job_without_a_guarantee_is_told_who_leaves_it_no_time() -> None:
    jobs = (
        Job.rigid("host", 0.0, 1, 600.0, stages=Stages(1.0, 0.0, 1.0, 0.0)),
        Job.rigid("guest", 0.0, 2, 600.0, priority=-1.0, stages=Stages(1.0, 0.0, 1.0, 0.0)),
    )
    said = told(AntMan(), Cluster.uniform(1, 2), *jobs, sharing=Leftovers())["guest", 60.0]
    assert "Of the 2 GPUs without such a job, only 1 can take it, so it waits. On the other 1, it would" in said
    assert said.endswith("which leaves it no time to run: host.")


def test_a_plan_of_shockwave_with_more_rounds_than_needed_says_how_many_are_needed() -> None:
    job = Job.rigid("short", 0.0, 1, 290.0)
    said = told(Shockwave(), Cluster.uniform(1, 1), job)["short", 60.0]
    assert "another 0:04:50, or 5 rounds. The plan may give it more, because rounds beyond those" in said


def test_a_pack_under_muri_says_what_sharing_gains_and_whose_turn_it_has() -> None:
    """Both jobs need both GPUs. One loads data while the other computes."""
    jobs = (
        Job.rigid("first", 0.0, 2, 600.0, stages=Stages(1.0, 0.9, 0.1, 0.0)),
        Job.rigid("second", 0.0, 2, 900.0, stages=Stages(1.0, 0.1, 0.9, 0.0)),
    )
    said = told(Muri(), Cluster.uniform(1, 2), *jobs)["second", 60.0]
    assert "It is in a pack with first, whose turn is that of first, number 1. At this turn, 2 GPUs are left" in said
    assert "one after the other 2 s. Their resources are busy for" in said
    assert said.endswith("No job outside the pack has this size and known stages, among these first jobs.")


@pytest.mark.parametrize(
    ("knows_durations", "words"),
    [(True, "first, the nearest job ahead of it that gets GPUs, has 0.333 GPU-hours left to run."),
     (False, "first, the nearest job ahead of it that gets GPUs, has attained 0 GPU-hours.")],
)  # fmt: skip
def test_a_job_that_muri_leaves_waiting_is_told_the_value_of_the_job_ahead(knows_durations: bool, words: str) -> None:
    jobs = Job.rigid("first", 0.0, 2, 600.0), Job.rigid("second", 0.0, 2, 900.0)
    said = told(Muri(knows_durations=knows_durations), Cluster.uniform(1, 2), *jobs)["second", 60.0]
    assert said.endswith(words)
