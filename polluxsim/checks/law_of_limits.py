"""The law that no start exceeds a limit on the GPUs or running jobs of a user, quality of service or queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.law import Law
from polluxsim.checks.worlds import World
from polluxsim.policies.contract.reasons import RoundSeen


@dataclass
class UseLimits(Law):
    """A job starts only if the jobs that hold GPUs then, with the new job, keep all limits of the world."""

    world: World

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Yield a finding for each start that exceeds a limit."""
        started = [job for job in this_round.jobs if not job.gpus_before and this_round.held[job.job_id]]
        for setting, most in self.world.limits:
            *group, number = setting.split(".")  # like qos, high, user_gpus
            # Attributes that are equal for all jobs that count together.
            attributes = []
            if number.startswith("user_"):
                attributes.append("user")
            if group[0] != "all":
                attributes.append(group[0])
            for job in started:
                is_of_group = group[0] == "all" or getattr(job, group[0]) == group[1]
                # A limit by user does not count jobs without a user.
                has_no_user = "user" in attributes and not job.user
                if not is_of_group or has_no_user:
                    continue
                amount = this_round.held_with(job, attributes, counts_gpus=number.endswith("gpus"))
                if amount > most:
                    start = f"job {job.job_id!r} starts at {this_round.time:g} s"
                    yield Finding(Fault.LIMIT, f"{start}: with it {setting} is {amount}, at most {most}")
