"""Reasons of Pollux: the worth of one GPU more or fewer for a job, and the job that it competes with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, Reason, ReasonKind
from polluxsim.policies.pollux.problem import SPEEDUP_FLOOR, Answer, Problem, power_mean
from polluxsim.policies.tools.gangs import NEAREST
from polluxsim.policies.tools.reason_kinds import AT_LIMIT, ELASTIC_UNITS, NO_GAIN, NO_LEAST_LEFT, SPEEDUPS

ROUNDING = 1e-9  # gains below this share do not count


_TYPES = (
    "[types?[types>1? The search takes the GPUs of all types as alike.[left_after_cut>0? Then the policy took the GPUs "
    "of further types from each job, which leaves {left_after_cut:GPU} free.]]]"
)
"""Sentences on a cluster of several GPU types."""

RESTART_PENALTY = ReasonKind(
    "restart-penalty",
    "[gpus=0?[gpus_free=0?No GPU is left, and the job needs at least {fewest_gpus}"
    "|gpus_free<fewest_gpus?{gpus_free:GPU} [gpus_free=1?is|are] left, and the job needs at least {fewest_gpus}"
    "|gpus_before>0?{gpus_free:GPU} [gpus_free=1?is|are] left, but the policy gives such a job no other GPUs in the "
    "round in which it loses its own"
    "|{gpus_free:GPU} [gpus_free=1?is|are] left, at most {node_gpus_left} on one node. The job needs at least "
    "{fewest_gpus}, and only one job that is spread over nodes may be on a node], so it waits. The search gains "
    "nothing by a GPU for this job now, because its restart factor is 0: its "
    "age [num_restarts=0?is {age:clock}|of {age:clock} is no more than the delay of "
    "{restart_delay:clock} for each of its {num_restarts:restart}]. Such jobs get only GPUs that the others leave, "
    "first those with the least GPU time so far (this job {gpu_time:hours} GPU-hours), then the first submitted."
    f"|{SPEEDUPS} A restart for one GPU more is not worth it: the "
    "larger speedup times the restart factor is {worth_more:.2f}, no more than the present {worth:.2f}.]",
    ELASTIC_UNITS,
    "A restart costs more than another GPU gains.",
)
CLUSTER_FULL = ReasonKind(
    "cluster-full",
    f"The job [gpus=0?waits|has {{gpus:GPU}}]. {SPEEDUPS} In the search, all GPUs are taken, and {{jobs:job}} "
    "[jobs=1?competes|compete] for them."
    "[weight? The term of this job counts {weight:.3g} times in the fitness, by its rank in remaining time.]"
    "[ {first} would lose least by giving up a GPU. Giving it to this job would "
    "[fitness_exchange>fitness?raise the fitness, which the policy maximises, from {fitness:.5g} to "
    "{fitness_exchange:.5g}, but the nodes or the search did not allow it"
    "|fitness_exchange<fitness?lower the fitness, which the policy maximises, from {fitness:.5g} to "
    "{fitness_exchange:.5g}"
    f"|leave the fitness, which the policy maximises, at {{fitness:.5g}}].]{_TYPES}",
    ELASTIC_UNITS,
    "All GPUs are taken. The reason names the job that would lose least by giving up a GPU.",
)
GPUS_LEFT = ReasonKind(
    "gpus-left",
    f"{SPEEDUPS} One GPU more would be worth {{worth_more:.2f}}, and {{gpus_free:GPU}} [gpus_free=1?is|are] free. The "
    "search did not use [gpus_free=1?it|them], or a node already has a job that is spread over nodes."
    f"{_TYPES}",
    ELASTIC_UNITS,
    "Another GPU is free and would pay, but the search did not find it, or the nodes do not allow it.",
)


class Explanation:
    """The reasons of the jobs in one round. Only the reasons that are asked for are computed."""

    def __init__(self, view: ClusterView, problem: Problem, answer: Answer) -> None:
        self._view = view
        self._jobs = {job.job_id: job for job in view.jobs}
        self._problem = problem
        self._answer = answer
        self._gpus = answer.allocation.sum(axis=1)
        self._before = problem.placements.sum(axis=1)
        self._changed = (answer.allocation != problem.placements).any(axis=1)
        self._num_gpus = view.num_gpus
        self._num_nodes = len(view.gpus_per_node)
        self._node_size = view.node_size
        # The speedups of the problem are scaled by nodes per GPU. With this factor, the fair share has speedup 1.
        self._scale = self._num_gpus / self._num_nodes

    def reasons(self, asked: Sequence[JobId]) -> dict[JobId, Reason]:
        """Return what limits each of these jobs. A reason has the first kind of `_reason` that applies.

        Numbers: `speedup` over the fair share on the present GPUs, `speedup_more` and `speedup_fewer` with one GPU more
        and fewer, all without restarts; `worth` and `worth_more`, the speedups with restarts, which the search
        compares; `fitness`, and `fitness_exchange` if the other job gave one GPU to this job; the limits of the job,
        its GPUs before the round, and the free GPUs. `NO_LEAST_LEFT` has only the free GPUs.
        """
        rows = {job_id: row for row, job_id in enumerate(self._problem.job_ids)}
        reasons = {}
        for job_id in asked:
            numbers = self._numbers(rows[job_id])
            model = self._jobs[job_id].goodput
            if model is not None:
                numbers["application_limit"] = model.application.most_replicas(model.application.largest_batch)
            reasons[job_id] = self._reason(rows[job_id], numbers)
        return reasons

    def _numbers(self, row: int) -> dict[str, float]:
        """Return the numbers of the reason of the job in a row, as `reasons` describes them."""
        problem = self._problem
        gpus = int(self._gpus[row])
        several = int((self._answer.allocation[row] > 0).sum() > 1)
        now = float(problem.speedups[row, several, gpus])
        factor = float(problem.restart_factors[row])
        limit = int(problem.max_replicas[row])
        factor_now = factor if self._changed[row] else 1.0
        numbers = {
            "gpus": gpus,
            "gpus_before": int(self._before[row]),
            "max_replicas": limit,
            "gpus_free": self._num_gpus - int(self._gpus.sum()),
            "jobs": len(problem.job_ids),
            "num_gpus": self._num_gpus,
            "fewest_gpus": int(problem.fewest[row]),
            "restart_factor": factor,
            "speedup": self._scale * now,
            "worth": self._scale * now * factor_now,
        }
        if problem.shifts is not None:
            numbers["weight"] = exp(problem.fairness_power * float(problem.shifts[row]))
        if gpus:
            numbers["speedup_fewer"] = self._scale * self._best_speedup(row, self._fewer(row))
        more = self._more(row)
        if more > limit:
            numbers["doubled"] = float(gpus > 0 and limit == 2 * numbers["gpus_before"])
        else:
            numbers["speedup_more"] = self._scale * self._best_speedup(row, more)
            numbers["worth_more"] = self._scale * self._worth(row, more)
        return numbers

    def _more(self, row: int) -> int:
        """Return the next larger number of GPUs that a job can have, disregarding its limit."""
        return max(int(self._gpus[row]) + 1, int(self._problem.fewest[row]))

    def _fewer(self, row: int) -> int:
        """Return the next smaller number of GPUs that a job can have, or 0."""
        fewer = int(self._gpus[row]) - 1
        return fewer if fewer >= self._problem.fewest[row] else 0

    def _reason(self, row: int, numbers: dict[str, float]) -> Reason:
        """Return the reason of the job in a row. The first kind that applies counts."""
        problem = self._problem
        if "speedup_more" not in numbers:
            return self._reason_at_limit(row, numbers)
        if numbers["speedup_more"] <= numbers["speedup"] * (1 + ROUNDING):
            return Reason(NO_GAIN, numbers)
        if numbers["worth_more"] <= numbers["worth"] * (1 + ROUNDING):
            numbers["node_gpus_left"] = int((problem.gpus_per_node - self._answer.allocation.sum(axis=0)).max())
            return Reason(RESTART_PENALTY, {**numbers, **self._numbers_of_age(row)})
        if not numbers["gpus"] and self._more(row) > max(numbers["gpus_free"], 1):
            return self._waits_for_minimum(row, numbers)
        if numbers["gpus_free"]:
            return Reason(GPUS_LEFT, numbers)
        return self._reason_on_full_cluster(row, numbers)

    def _reason_at_limit(self, row: int, numbers: Mapping[str, float]) -> Reason:
        """Return the reason of a job that may not have more GPUs than now."""
        if numbers["gpus"]:
            return Reason(AT_LIMIT, numbers)
        return self._waits_for_minimum(row, numbers)

    def _reason_on_full_cluster(self, row: int, numbers: dict[str, float]) -> Reason:
        """Return the reason of a job that competes for GPUs, with the job that would lose least by giving up one."""
        other = self._least_missed(row)
        if other is None:
            return Reason(CLUSTER_FULL, numbers)
        numbers["fitness"] = self._answer.fitness
        numbers["fitness_exchange"] = self._fitness_exchange(row, other)
        return Reason(CLUSTER_FULL, numbers, (self._problem.job_ids[other],))

    def _waits_for_minimum(self, row: int, numbers: Mapping[str, float]) -> Reason:
        """Return the reason of a job that waits because fewer GPUs are free than its user's minimum."""
        fewest = float(self._problem.fewest[row])
        numbers_of_minimum = {
            "gpus_left": numbers["gpus_free"],
            "fewest_gpus": fewest,
            "fitness": self._answer.fitness,
        }
        holders = np.flatnonzero(self._gpus > 0).tolist()[:NEAREST]
        return Reason(NO_LEAST_LEFT, numbers_of_minimum, tuple(self._problem.job_ids[holder] for holder in holders))

    def _numbers_of_age(self, row: int) -> dict[str, float]:
        """Return the numbers that determine the restart factor of a job."""
        job = self._jobs[self._problem.job_ids[row]]
        return {
            "age": self._view.time - job.submit_time,
            "gpu_time": job.attained_service,
            "num_restarts": job.num_restarts,
            "restart_delay": self._view.delay_of(job),
        }

    def _best_speedup(self, row: int, gpus: int) -> float:
        """Return the larger scaled speedup with `gpus` GPUs: on one node or on several."""
        speedups = self._problem.speedups[row]
        single = float(speedups[0, gpus]) if gpus <= self._node_size else 0.0
        several = float(speedups[1, gpus]) if gpus >= 2 and self._num_nodes > 1 else 0.0
        return max(single, several)

    def _worth(self, row: int, gpus: int) -> float:
        """Return the scaled speedup on a number of GPUs after a restart, or without one where that is better."""
        speedup = self._best_speedup(row, gpus) * float(self._problem.restart_factors[row])
        if gpus == self._before[row]:
            spread = int((self._problem.placements[row] > 0).sum() > 1)
            speedup = max(speedup, float(self._problem.speedups[row, spread, gpus]))
        return speedup

    @cached_property
    def _logs(self) -> NDArray[np.float64]:
        """Return the logarithm of the speedup of each job in the answer, shape (J,)."""
        return self._problem.logs_in(self._answer.allocation)

    @cached_property
    def _logs_fewer(self) -> NDArray[np.float64]:
        """Return the logarithm of the speedup of each job with the next fewer GPUs, shape (J,).

        A job without GPUs has none to lose, and keeps its speedup of 0.
        """
        fewer = [self._worth(row, self._fewer(row)) if gpus else 0.0 for row, gpus in enumerate(self._gpus.tolist())]
        return self._problem.logs_of(np.array(fewer))

    def _least_missed(self, row: int) -> int | None:
        """Return the row of the other job whose loss of a GPU lowers the fitness least; None if no other has GPUs."""
        holders = self._gpus > 0
        holders[row] = False
        if not holders.any():
            return None
        return int(np.where(holders, self._losses, np.inf).argmin())

    @cached_property
    def _losses(self) -> NDArray[np.float64]:
        """Return by how much the loss of a GPU of each job lowers the sum that determines the fitness, shape (J,).

        The values have a common scale, so that they can be compared.
        """
        power = self._problem.fairness_power
        if power == 0.0:
            return self._logs - self._logs_fewer
        now = power * self._logs
        fewer = power * self._logs_fewer
        # Relative to the largest term, so that nothing overflows. Terms that are negligible beside the largest term
        # have no effect.
        largest = max(float(now.max()), float(fewer.max()))
        sign = 1.0 if power > 0.0 else -1.0
        pairs = zip(now.tolist(), fewer.tolist(), strict=True)
        return np.array([sign * (exp(one - largest) - exp(other - largest)) for one, other in pairs])

    def _fitness_exchange(self, row: int, other: int) -> float:
        """Return the fitness if another job gave one GPU to the job in a row."""
        logs = self._logs.copy()
        shift = 0.0 if self._problem.shifts is None else self._problem.shifts[row]
        logs[row] = log(self._worth(row, self._more(row)) + SPEEDUP_FLOOR) + shift
        logs[other] = self._logs_fewer[other]
        return float(power_mean(logs, self._problem.fairness_power))
