from __future__ import annotations
from dataclasses import dataclass, field, replace
from math import ceil, log
import numpy as np
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.pollux.problem import build_problem

@dataclass
class ByRemaining(Pollux):
    kind: str = "oracle"     # oracle | learnt | said
    alpha: float = 4.0       # weights: rank ** alpha
    q: float = 0.0           # if > 0 heSRPT shares with exponent q, weight = share ** alpha
    horizon: float = 0.0
    beta: float = 0.0
    theta: float = 0.0
    tie: float = 0.0
    boost: float = 1.0
    kappa: float = 0.0       # strength of the rule for critical jobs
    least: float = 1e-3
    seen: dict = field(default_factory=dict, init=False)
    totals: dict = field(default_factory=dict, init=False)
    sizes: dict = field(default_factory=dict, init=False)

    def _left(self, job):
        app = job.oracle.application
        done = job.oracle.progress
        if self.kind == "oracle":
            return job.oracle.remaining_iterations(app.init_batch_size) * app.init_batch_size
        done *= app.init_batch_size
        self.seen[job.job_id] = (app.name, done)
        known = self.totals.get(app.name)
        if known:
            total = float(np.mean(known))
            if done < total:
                return total - done
        return max(done, 1.0)  # as much again

    def _problem(self, view):
        problem = build_problem(view, self._tables, self.p, avoid_interference=self.avoid_interference)
        if self.kind != "oracle":
            for job_id in view.changes.ended:
                if job_id in self.seen:
                    name, done = self.seen.pop(job_id)
                    self.totals.setdefault(name, []).append(done)
        by_name = {job.job_id: job for job in view.jobs}
        jobs = [by_name[i] for i in problem.job_ids]
        n = len(jobs)
        share = ceil(view.num_gpus / n)
        times = np.empty(n); alone = np.empty(n); work = np.empty(n)
        known = np.ones(n, bool)
        for i, job in enumerate(jobs):
            left = self._left(job)
            if job.goodput is None:
                known[i] = False
                times[i] = alone[i] = work[i] = np.nan
                continue
            m = job.goodput
            fair = m.best(1, min(share, m.application.max_batch_size // m.application.min_atomic_batch_size))[0]
            one = m.best(1, 1)[0]
            times[i] = left / fair
            work[i] = left / one  # GPU seconds at the least
            most = max(1, min(job.max_replicas, view.num_gpus))
            top = float(problem.speedups[i].max()) * view.num_gpus / len(view.gpus_per_node) * fair
            alone[i] = left / top
        if known.any():
            mid = float(np.median(times[known]))
            times[~known] = mid
            alone[~known] = 0.0; work[~known] = float(np.median(work[known]))
        else:
            return problem
        order = np.argsort(-times, kind="stable")
        rank = np.empty(n); rank[order] = np.arange(1, n + 1)
        rank = (rank) / n
        if self.tie:
            load = work.sum() / view.num_gpus
            crit = alone >= abs(self.tie) * load
            if crit.any():
                if self.tie > 0:
                    rank[crit] = rank[crit].mean() * self.boost
                else:
                    got = np.sort(rank[crit]); o = np.argsort(alone[crit], kind="stable")
                    back = np.empty(len(got)); back[o] = got
                    rank[crit] = back
        if self.beta:
            w = times ** -self.beta
            w = w / w.max()
        elif self.q > 0:
            e = 1.0 / (1.0 - self.q)
            th = rank ** e - (rank - 1.0 / n) ** e
            w = (th * n) ** self.alpha
        else:
            w = rank ** self.alpha
        w = np.maximum(w, self.least)
        if self.theta > 0:
            load = work.sum() / view.num_gpus
            crit = alone >= self.theta * load
            if crit.any() and not crit.all():
                rest = ~crit
                o = np.argsort(-times[rest], kind="stable")
                m = int(rest.sum()); r = np.empty(m); r[o] = np.arange(1, m + 1) / m
                wr = np.maximum(r ** self.alpha, self.least)
                wr /= float(np.mean(wr ** (1 / (1 - self.p)))) ** (1 - self.p)
                w = np.empty(n); w[rest] = wr; w[crit] = self.boost
        if self.horizon > 0:
            delay = np.array([view.delay_of(job) for job in jobs])
            t = np.minimum(times, self.horizon)
            problem = replace(problem, restart_factors=t / (t + delay))
        w = w / np.exp(np.log(w).mean())
        return replace(problem, shifts=np.log(w) / self.p)
