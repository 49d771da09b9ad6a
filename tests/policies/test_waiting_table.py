"""A table of jobs that follows the changes is the table that would be made anew, and its orders are sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.checks.driving import run_policy
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.policies.tools.gangs import schedule_gangs
from polluxsim.policies.tools.waiting_orders import FallingOrder, RisingOrder, SubmissionOrder
from polluxsim.policies.tools.waiting_table import WaitingTable

if TYPE_CHECKING:
    from polluxsim.policies.contract.view import ClusterView, Decision

WORLDS = range(200, 224)


class Followed:
    """A preemptive policy that compares its table with the jobs of the view."""

    def __init__(self) -> None:
        self.table = WaitingTable()
        self.num_decisions = 0

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        self.table.update(view)
        self.num_decisions += 1
        table, waiting = self.table, list(view.waiting)
        rows = table.waits.nonzero()[0].tolist()
        assert [table.job(row) for row in rows] == waiting
        assert table.num_waiting == len(waiting)
        assert [table.gpus[row] for row in rows] == [job.num_replicas for job in waiting]
        assert [table.submit_time[row] for row in rows] == [job.submit_time for job in waiting]
        assert int(table.is_present.sum()) == len(view.jobs)
        assert table.waiting_queues() == list(dict.fromkeys(job.queue or "none" for job in waiting))
        assert table.present_users() == list(dict.fromkeys(job.user or "" for job in view.jobs))
        self.check_orders(rng)
        return schedule_gangs(view, sorted(view.jobs, key=lambda job: job.attained_service))

    def check_orders(self, rng: np.random.Generator) -> None:
        """Compare orders of a few different values with sorts of the waiting rows."""
        table = self.table
        values = rng.integers(0, 3, len(table.waits)).astype(float)
        ranks = rng.integers(0, 2, len(table.waits))
        rows = table.waits.nonzero()[0].tolist()
        sorts = {
            SubmissionOrder(table): rows,
            FallingOrder(table, lambda: values): sorted(rows, key=lambda row: -values[row]),
            RisingOrder(table, lambda: values, lambda: ranks, 0.0): sorted(
                rows, key=lambda row: (values[row], ranks[row])
            ),
        }
        for order, expected in sorts.items():
            assert list(order.rows(table.waits)) == expected
            assert order.ranks(expected) == list(range(1, len(expected) + 1))
            assert [order.ranks([row])[0] for row in expected] == list(range(1, len(expected) + 1))
            assert sorted(rows, key=order.key) == expected


def test_a_table_follows_all_changes() -> None:
    num_decisions = 0
    for number in WORLDS:
        policy = Followed()
        run_policy(random_world(number, Allowed(scaled=False)), policy)
        num_decisions += policy.num_decisions
    assert num_decisions > 500
