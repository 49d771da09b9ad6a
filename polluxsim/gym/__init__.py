"""The simulator as a Gymnasium environment, and learned policies that were trained in it. Needs the extra `gym`.

>>> import gymnasium, polluxsim.gym
>>> env = gymnasium.make("polluxsim/Cluster-v0")
>>> observation, info = env.reset(seed=1)
>>> env.action_space, observation["queue"].shape, info["time"]
(Discrete(17), (16, 8), 960.0)
"""

from __future__ import annotations

try:
    import gymnasium
except ImportError:
    raise ImportError("polluxsim.gym needs Gymnasium: pip install 'polluxsim[gym]'") from None

from polluxsim.gym.env import ClusterEnv
from polluxsim.gym.policy import AgentPolicy, Layout

__all__ = ["ClusterEnv", "AgentPolicy", "Layout"]  # noqa: RUF022  (in the order in which one needs them)

ENV_ID = "polluxsim/Cluster-v0"

if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point=ClusterEnv)
