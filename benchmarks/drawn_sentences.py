"""Draw reasons of decisions, and print the sentence of each with the round that it explains.

    python benchmarks/drawn_sentences.py [--count 60] [--seed 0] [--policies fifo quotas]

A reader who did not write the sentences can judge by this text whether each is true, names the numbers that decided,
and can be understood at once. Each sentence is of another policy while there are any left, and of a kind of reason that
is not yet among the sentences, if the policy has one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from random import Random

from check_worlds import SHIPPED

from polluxsim.checks.checking import made
from polluxsim.checks.driving import run_policy
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.checks.worlds import World
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import traits_of
from polluxsim.records.results import ReasonRecord, Result
from polluxsim.run.named_policies import named_policy
from polluxsim.workloads.job import Job

TRIES = 30
"""Worlds that are drawn until one has a reason of a kind that is new."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policies", nargs="*", default=SHIPPED)
    options = parser.parse_args()
    rng = Random(options.seed)
    kinds: set[str] = set()
    order: list[str] = []
    while len(order) < options.count:
        order += rng.sample(options.policies, len(options.policies))
    for number, name in enumerate(order[: options.count], start=1):
        print(f"## {number}. {name}\n")
        print("\n".join(explained(name, kinds, rng)), "\n")


def explained(name: str, kinds: set[str], rng: Random) -> Iterator[str]:
    """Yield the lines about one drawn reason of a policy, and add its kind."""
    guest = named_policy(name)
    allowed = Allowed.under(traits_of(guest.make()))
    candidates: list[tuple[World, Result, ReasonRecord]] = []
    for _ in range(TRIES):
        world = random_world(rng.randrange(10**6), allowed)
        result = run_policy(world, made(guest, world, afresh=True))
        candidates += [(world, result, record) for record in result.reason_records]
        new = [candidate for candidate in candidates if candidate[-1].kind not in kinds]
        if new:
            candidates = new
            break
    if not candidates:
        yield f"No reason in {TRIES} worlds."
        return
    world, result, chosen = rng.choice(candidates)
    kinds.add(chosen.kind)
    yield from described(world, result, chosen)


def described(world: World, result: Result, chosen: ReasonRecord) -> Iterator[str]:
    """Yield the nodes, the jobs before and after the round, and the sentence."""
    yield f"Cluster: GPUs of the nodes {list(world.nodes)}; types: {', '.join(world.types) or 'one'}."
    yield f"Parameters of the policy in this world: {dict(world.parameters)}."
    yield f"Other settings: {settings(world)}. All times of the jobs below are multiplied by clock, if it is there."
    nodes_up = [record.nodes for record in result.round_records if record.time <= chosen.time]
    yield f"Round at {chosen.time:g} s, with {nodes_up[-1] if nodes_up else 0} of {len(world.nodes)} nodes up."
    before = placements(result, chosen.time, is_before=True)
    after = placements(result, chosen.time, is_before=False)
    records = {record.job: record for record in result.job_records}
    for job in world.jobs:
        record = records.get(job.job_id)
        # The run scales the times of the jobs by `world.clock`; the records have the times of the run.
        if record is None or record.submit_time > chosen.time:
            continue
        if record.end_time is None or record.end_time >= chosen.time:
            held = before.get(job.job_id, "none")
            holds = after.get(job.job_id, "none")
            yield f"- {settings(job)}"
            yield f"    - (node, GPUs) before the round: {held}; after: {holds}"
    yield f"\nSentence about {chosen.job}: **{sentence(chosen, result.reason_texts)}**"


def settings(value: World | Job) -> str:
    """Return the fields that differ from the defaults, but not the nodes, jobs and parameters of a world."""
    texts = []
    for field in fields(value):
        content = getattr(value, field.name)
        is_elsewhere = field.name in {"nodes", "jobs", "types", "parameters"}
        is_given = field.default is MISSING or content != field.default
        if is_given and not is_elsewhere:
            texts.append(f"{field.name}={content!r}")
    return ", ".join(texts) or "none"


def placements(result: Result, time: float, *, is_before: bool) -> dict[str, Sequence[object]]:
    """Return the last allocation of each job before or after a round at a time [s]."""
    last: dict[str, Sequence[object]] = {}
    for record in result.allocation_records:
        if record.time < time or (record.time == time and not is_before):
            last[record.job] = list(zip(record.nodes, record.gpus, strict=True))
    return last


if __name__ == "__main__":
    main()
