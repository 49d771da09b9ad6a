"""Numbers in the reasons of ElasticFlow: what a deadline needs, and which jobs hold the GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from polluxsim.common.phrases import listed
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, Reason
from polluxsim.policies.deadlines.plans import Demand, Schedule, capped_plan
from polluxsim.policies.deadlines.reason_kinds import NOT_ADMITTED
from polluxsim.policies.tools.timetable import Timetable

# Largest number of other jobs that a reason names with their GPUs.
MOST_HOLDERS = 3


def numbers_of_demand(view: ClusterView, demand: Demand, gpus: int) -> dict[str, float]:
    """Return the fewest GPUs that meet a deadline alone from now on, and the GPUs to the next larger number.

    A number that does not exist is left out. The template of the sentence then leaves out its part.
    """
    numbers: dict[str, float] = {}
    if demand.deadline < inf:
        empty_cluster = Timetable(view.time, view.num_gpus)
        for cap in demand.times:
            if demand.is_met_by(capped_plan(demand, empty_cluster, cap)):
                numbers["deadline_gpus"] = float(cap)
                break
    larger = [count for count in demand.times if count > gpus]
    if larger:
        numbers["next_gpus"] = float(larger[0] - gpus)
    return numbers


def numbers_of_holders(counts: Mapping[JobId, int], job_id: JobId) -> dict[str, float]:
    """Return the GPUs of the other jobs, as numbers of a reason: the jobs with most GPUs, and the sum of the rest.

    `counts` contains the GPUs that each job has now by its plan.
    """
    holders = [other for other, gpus in counts.items() if gpus and other != job_id]
    # The sort is stable, so equal jobs stay in the order of the plans.
    holders.sort(key=lambda other: -counts[other])
    numbers: dict[str, float] = {}
    for index, other in enumerate(holders[:MOST_HOLDERS], start=1):
        numbers[f"holds_{index} {other}"] = float(counts[other])
    rest = holders[MOST_HOLDERS:]
    if rest:
        numbers["more_holders"] = float(len(rest))
        numbers["more_hold"] = float(sum(counts[other] for other in rest))
    return numbers


def why_not(view: ClusterView, demand: Demand, schedule: Schedule, group: Sequence[JobId] = ()) -> Reason:
    """Return why a job is not admitted. `group` contains the jobs that are admitted only together with it.

    The planned end is that of the job alone on the GPUs that are up. It is left out if these are too few. `schedule`
    contains the plans of the other jobs, which state when the job would end beside them.
    """
    numbers = {"deadline": demand.deadline, "num_gpus": float(view.num_gpus)}
    empty_cluster = Timetable(view.time, view.num_gpus)
    fastest = capped_plan(demand, empty_cluster, max(demand.times, default=0))
    if fastest.end < inf:
        numbers["planned_end"] = fastest.end
    admitted = list(schedule.plans)
    plans = [capped_plan(demand, schedule.free, cap) for cap in demand.times]
    # On the nodes that are left, a job may be slower than its plan assumes. The plans then say nothing.
    is_late_beside = not any(demand.is_met_by(plan) for plan in plans)
    if admitted and is_late_beside and not group:
        names = listed(admitted)
        if len(admitted) > MOST_HOLDERS:
            names = f"{', '.join(admitted[:MOST_HOLDERS])} and others"
        numbers[f"admitted {names}"] = float(len(admitted))
        earliest_end = min((plan.end for plan in plans), default=inf)
        if earliest_end < inf:
            numbers["beside_end"] = earliest_end
    return Reason(NOT_ADMITTED, numbers, tuple(group))
