"""Elastic policies for jobs with deadlines."""

from __future__ import annotations

from functools import partial

from polluxsim.common.former_names import former_attribute

# Return `EarliestDeadline`, which was in the module `polluxsim.policies.deadlines`, with a warning.
__getattr__ = partial(former_attribute, __name__)
