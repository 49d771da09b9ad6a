"""Help texts of options that several commands have."""

from __future__ import annotations

RUNS = "folder of a finished run or of a sweep"
BASELINE = "baseline: a run's folder, or a setting like policy=fifo or policy.p=-1 (default: the first run)"
POLICIES = "names of policies, each with its settings in parentheses: 'easy,quotas(gpus={research: 4})'"
TIME = "seconds since the start of the run, 1.5h or H:MM:SS"
WORKERS = "number of processes (default: one for each core)"
OUT = "folder for the runs (default: %(default)s)"
REPEATED = "this option may be given several times"
CONFIGS = "folder of your configuration files, which replace shipped files of the same names"
