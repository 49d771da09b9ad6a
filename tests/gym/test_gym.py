"""The environment keeps Gymnasium's rules and the simulator's: rewards add up, and agents do what policies do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import gymnasium
import numpy as np
import pytest
from agents import fifo, whatever
from gymnasium.utils.env_checker import check_env

import polluxsim
import polluxsim.gym
from polluxsim.checks import check
from polluxsim.checks.findings import Fault
from polluxsim.common.errors import InvalidConfigError, TurnError
from polluxsim.gym import ENV_ID, AgentPolicy, ClusterEnv, Layout

ADAPTED = polluxsim.workload("philly-like", num_jobs=40, hours=1)
RIGID = polluxsim.workload("philly-like-rigid", hours=3)
WIDE = {"queue": 3, "running": 2, "gpus": (0, 1, 2, 4, 8)}


def played(env: Any, agent: Callable[..., int], seed: int) -> list[tuple[Any, ...]]:
    """Return all that an agent saw and earned in an episode."""
    seen, info = env.reset(seed=seed)
    steps, over = [(seen, 0.0, info["time"], info["action_mask"])], False
    while not over:
        assert seen in env.observation_space
        seen, reward, done, cut, info = env.step(agent(seen, info["action_mask"]))
        steps.append((seen, reward, info["time"], info["action_mask"]))
        over = done or cut
    assert done != cut
    return steps


def completions(run: Any) -> dict[str, float]:
    return dict(run.jobs.set_index("job")["completion_time"])


@pytest.mark.parametrize("settings", [{}, {**WIDE, "oracle": True, "reward": "goodput", "horizon": 1e5}])
def test_gymnasium_has_nothing_to_say(settings: dict[str, Any]) -> None:
    """Its warnings are errors here."""
    check_env(gymnasium.make(ENV_ID, workload=ADAPTED, **settings).unwrapped)


def test_it_is_made_by_name_and_in_processes_of_its_own() -> None:
    alone = gymnasium.make(ENV_ID, workload=ADAPTED)
    envs = gymnasium.make_vec(
        ENV_ID, num_envs=2, vectorization_mode="async", vector_kwargs={"context": "spawn"}, workload=ADAPTED
    )
    try:
        seen, info = envs.reset(seed=[4, 5])
        mine, its = alone.reset(seed=5)
        for _ in range(10):
            assert all(np.array_equal(seen[name][1], mine[name]) for name in mine)
            assert info["time"][1] == its["time"]
            actions = [int(mask[1]) for mask in info["action_mask"]]
            seen, rewards, _, _, info = envs.step(np.array(actions))
            mine, reward, _, _, its = alone.step(actions[1])
            assert rewards[1] == reward
    finally:
        envs.close()


@pytest.mark.parametrize("agent", [fifo, whatever])
@pytest.mark.parametrize("seed", [0, 1])
def test_rewards_add_up(agent: Callable[..., int], seed: int) -> None:
    """A rigid job takes its duration alone, and its work is that on its GPUs."""
    sums = {}
    for reward in ("jobs", "slowdown", "goodput"):
        env = ClusterEnv(RIGID, reward=reward, queue=4)
        sums[reward] = sum(step[1] for step in played(env, agent, seed))
    assert env.run is not None
    alone = {job.job_id: job.duration for job in env.run.scenario.workload.jobs}
    jobs = env.run.result().jobs
    durations = jobs["job"].map(alone)
    assert sums["jobs"] == pytest.approx(-jobs["jct"].sum(), rel=1e-12)
    assert sums["slowdown"] == pytest.approx(-(jobs["jct"] / durations).sum(), rel=1e-12)
    assert sums["goodput"] == pytest.approx((durations * jobs["num_replicas"]).sum(), rel=1e-12)


def test_until_the_horizon_rewards_are_of_the_time_until_then() -> None:
    env = ClusterEnv(ADAPTED, horizon=3600.0)
    steps = played(env, whatever, 1)
    now = steps[-1][2]
    with pytest.raises(TurnError, match="reset the environment"):
        env.step(np.int64(0))
    result = polluxsim.simulate(ADAPTED, policy=AgentPolicy(whatever), seed=1).jobs
    ends = result["completion_time"].clip(upper=now)
    assert now >= 3600.0
    assert max(step[2] for step in steps[:-1]) < 3600.0
    assert sum(step[1] for step in steps) == pytest.approx(-(ends - result["submit_time"]).clip(lower=0).sum())


def test_the_same_seed_is_the_same_episode() -> None:
    env = ClusterEnv(RIGID, **WIDE)
    first, other, again = (played(env, whatever, seed) for seed in (2, 3, 2))
    assert [step[1:3] for step in first] == [step[1:3] for step in again]
    assert all(np.array_equal(a[0][name], b[0][name]) for a, b in zip(first, again, strict=True) for name in a[0])
    assert [step[2] for step in first] != [step[2] for step in other]


@pytest.mark.parametrize("load", [ADAPTED, RIGID], ids=["adapted", "rigid"])
@pytest.mark.parametrize("seed", [1, 2])
def test_first_in_first_out_is_the_policy(load: Any, seed: int) -> None:
    """To the last bit, by the environment, by the agent as a policy, and by FIFO itself."""
    env = ClusterEnv(load, settings=polluxsim.settings(round_interval=120.0))
    played(env, fifo, seed)
    settings = polluxsim.settings(round_interval=120.0)
    policies = ("fifo", AgentPolicy(fifo))
    expected, other = (polluxsim.simulate(load, policy=policy, seed=seed, settings=settings) for policy in policies)
    assert env.run is not None
    assert completions(env.run.result()) == completions(expected) == completions(other)


@pytest.mark.parametrize(
    "cluster", [(16, 4), polluxsim.cluster("mixed", groups=[[8, 4, "t4"], [4, 8, "v100-32"]])], ids=["alike", "mixed"]
)
def test_an_agent_does_as_a_policy_what_it_did_in_the_environment(cluster: Any) -> None:
    env = ClusterEnv(RIGID, cluster=cluster, **WIDE)
    played(env, whatever, 6)
    policy = AgentPolicy(whatever, Layout(**WIDE))
    assert env.run is not None
    result = polluxsim.simulate(RIGID, policy=policy, cluster=cluster, seed=6)
    assert completions(env.run.result()) == completions(result)


def test_masks_allow_what_can_be_carried_out() -> None:
    """In drawn worlds of all kinds: profiles, rigid and elastic jobs, GPU types, failures. The agent may idle."""
    findings = check(f"{Path(agents.__file__)}:Whatever", 30)
    assert [finding for finding in findings if finding.fault is not Fault.IDLE] == []


def test_what_is_masked_lets_time_go_on() -> None:
    env = ClusterEnv(ADAPTED, **WIDE)
    _, info = env.reset(seed=1)
    assert env.action_masks().tolist() == info["action_mask"].astype(bool).tolist()
    assert env.run is not None
    while info["action_mask"].all() or not env.run.allocation:
        info = env.step(np.int64(np.flatnonzero(info["action_mask"])[-1]))[-1]
    before = env.run.time, dict(env.run.allocation)
    (masked, *_) = np.flatnonzero(info["action_mask"] == 0)
    env.step(masked)
    assert env.run.time > before[0]
    assert env.run.allocation.keys() <= before[1].keys()


def test_profiles_are_read_once() -> None:
    """Loads that differ in their seeds alone share them, with all that was computed of them."""
    env, profiles = ClusterEnv(ADAPTED), []
    for seed in (1, 2):
        env.reset(seed=seed)
        assert env.run is not None
        profiles.append(env.run.scenario.profiles)
    assert profiles[0] is profiles[1]


def test_who_starts_nobody_is_broken_off() -> None:
    env = ClusterEnv(polluxsim.workload("one-job", application="ncf"))
    rewards, over, cut, info = 0.0, False, False, env.reset(seed=0)[1]
    assert info["action_mask"][0] == 0
    while not over:
        _, reward, done, cut, info = env.step(np.int64(0))
        rewards, over = rewards + reward, done or cut
    assert cut
    assert "none of the 1 jobs left" in info["standstill"]
    assert rewards == -info["time"]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"reward": "job"}, "reward is 'job', must be one of jobs, slowdown, goodput; did you mean jobs?"),
        ({"queue": 0}, "queue is 0, must be a whole number from 1 to 10000"),
        ({"running": True}, "running is True, must be a whole number from 1 to 10000"),
        ({"gpus": (2, 1)}, "gpus is (2, 1), must be rising whole numbers of at least 0"),
        ({"gpus": ()}, "gpus is (), must be rising whole numbers of at least 0"),
        ({"oracle": "yes"}, "oracle is 'yes', must be True or False"),
        ({"horizon": 0}, "horizon is 0, must be a number > 0, or null"),
        ({"rows": 3}, "there is no setting 'rows'; choose from queue, running, gpus, oracle"),
        ({"workload": "philly-lick"}, "workload=philly-lick is unknown"),
        (
            {"settings": polluxsim.settings(horizon=60.0)},
            "engine.horizon is set, but the environment has its own horizon",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidConfigError) as error:
        ClusterEnv(**settings).reset(seed=0)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_without_gymnasium_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'polluxsim\[gym\]'"):
        importlib.reload(polluxsim.gym)
