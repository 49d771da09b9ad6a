"""Records of runs: their types and units, Parquet tables, and run folders."""

from __future__ import annotations

from functools import partial

from polluxsim.common.former_names import former_attribute

# Return a record type by its former name, like `polluxsim.records.JobRecord`, with a warning.
__getattr__ = partial(former_attribute, __name__)
