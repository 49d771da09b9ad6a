"""Statistics of the trace of Microsoft's Philly cluster, for Philly-like loads.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters" (ATC '19), data under CC-BY-4.0, as philly.csv
of the artifact of Pollux (OSDI '21). `benchmarks/philly_statistics.py --figures` prints the statistics of bursts, over
the 80 days from 2017-09-24 to 2017-12-12 and all rows except the heartbeat. A burst consists of jobs of one virtual
cluster with pauses of at most `BURST_GAP`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Independent draws: jobs of a minute or more and less than 1000 GPU-hours, submitted between 02 and 10 h UTC.

JOBS_BY_HOUR = (3550, 3368, 2240, 3728, 5169, 6585, 3499, 3154)
"""Jobs submitted in each hour from 02 to 10 h UTC, all days."""

CLASS_SHARES: Mapping[str, float] = {"S": 78.3, "M": 15.25, "L": 4.6, "XL": 1.9}
"""Jobs of each size class [%]. The classes end at 1, 10, 100 and 1000 GPU-hours."""

GPUS_BY_CLASS: Mapping[str, Mapping[int, float]] = {
    "S": {1: 98.5, 4: 0.8, 8: 0.4},
    "M": {1: 95.4, 4: 2.0, 8: 2.0},
    "L": {1: 53.9, 2: 4.6, 4: 23.5, 8: 16.1, 16: 1.0, 32: 0.7},
    "XL": {8: 60.9, 16: 18.3, 32: 18.9},
}
"""Shares of numbers of GPUs in a size class [%], for L and XL among jobs of at most a day, without rare numbers."""

# Bursts, all hours and rows.

BURST_GAP = 300  # longest pause between two jobs of a burst [s]
BURSTS_PER_HOUR = 5.226  # starts of bursts, mean over the 80 days [1/h]

BURST_KINDS: Mapping[str, int] = {"one": 1, "few": 2, "tens": 10, "many": 50}
"""Kinds of bursts, and the fewest jobs of each. Bursts of kind `many` start at different hours."""

SIZE_TAIL: Mapping[int, float] = {
    1: 1.0, 2: 0.3746, 3: 0.1917, 5: 0.1045, 10: 0.0575, 20: 0.0347, 50: 0.0247, 70: 0.0212, 100: 0.0133, 150: 0.0095,
    200: 0.008, 300: 0.0055, 500: 0.002, 700: 0.0007, 1000: 0.0002,
}  # fmt: skip
"""Share of bursts with at least a number of jobs [1], by this number."""

MOST_JOBS = 1063  # jobs of the largest burst

STARTS_BY_HOUR = (
    446, 384, 415, 440, 373, 476, 514, 546, 559, 439, 366, 320,
    316, 312, 293, 311, 342, 431, 428, 397, 367, 449, 408, 441,
)  # fmt: skip
"""Starts of bursts of fewer than 50 jobs by hour of day, UTC."""

LARGE_STARTS_BY_HOUR = (
    82, 15, 64, 37, 4, 74, 96, 126, 1, 48, 42, 32, 25, 24, 18, 25, 49, 2, 42, 18, 70, 14, 73, 18,
)  # fmt: skip
"""Relative rate of starts of larger bursts by hour of day, UTC [‰].

Fitted to the hours of all jobs (`philly_statistics.py --fit-hours`).
"""

WEEKEND = 0.539  # ratio of the starts on a day of the weekend to those on a weekday, bursts of fewer than 50 jobs [1]
LARGE_WEEKEND = 0.435  # the same ratio for larger bursts [1]
WEEKDAYS = 57  # among the 80 days
WEEKEND_DAYS = 23  # among the 80 days

TENANTS: Mapping[str, Sequence[float]] = {
    "one": (15.5, 13.8, 3.5, 33.7, 10.6, 0.2, 11.2, 0.9, 3.2, 2.8, 4.5),
    "few": (23.5, 17.1, 2.2, 23.7, 17.2, 0.7, 6.0, 1.9, 4.3, 2.0, 1.1),
    "tens": (43.0, 24.1, 0.9, 14.6, 0.3, 6.4, 2.1, 6.4, 1.5, 0.6, 0.0),
    "many": (54.8, 26.2, 9.7, 2.4, 0.0, 2.8, 0.0, 4.0, 0.0, 0.0, 0.0),
}
"""Bursts of each kind by virtual cluster, in order of their jobs, without four with 18 jobs in all [%]."""

USUAL_GPUS: Mapping[str, Mapping[int, float]] = {
    "one": {1: 62.28, 2: 13.52, 4: 9.78, 8: 12.64, 12: 0.06, 16: 1.5, 32: 0.16},
    "few": {1: 80.07, 2: 5.54, 4: 7.25, 8: 6.02, 12: 0.06, 16: 0.69, 32: 0.34},
    "tens": {1: 89.91, 2: 1.27, 4: 7.01, 8: 1.81},
    "many": {1: 99.76, 2: 0.24},
}
"""GPUs of most jobs of a burst, by kind of burst [% of jobs]."""

MIXED: Mapping[str, tuple[float, float]] = {
    "one": (0, 0), "few": (0.165, 0.379), "tens": (0.171, 0.272), "many": (0.060, 0.016),
}  # fmt: skip
"""Share of bursts with several numbers of GPUs, and share of their jobs that differ from most jobs of the burst [1]."""

DIFFERING_FROM_ONE: Mapping[int, float] = {2: 252, 4: 212, 8: 141, 16: 14, 32: 7}
DIFFERING_FROM_MORE: Mapping[int, float] = {1: 174, 2: 15, 4: 40, 8: 38, 16: 15, 32: 14}
"""GPUs of the jobs that differ, in bursts whose other jobs have one GPU, and several GPUs [jobs]."""

GAP_SHARES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1)
GAPS: Mapping[str, Sequence[float]] = {
    "one": (0,) * len(GAP_SHARES),
    "few": (0, 1, 2, 5, 16, 29, 45, 72, 124, 205, 249, 279, 289, 300),
    "tens": (0, 1, 2, 3, 4, 6, 9, 16, 28, 64, 127, 214, 256, 300),
    "many": (0, 0, 1, 2, 3, 5, 6, 9, 13, 19, 27, 39, 57, 299),
}
"""Quantiles of the pauses within a burst at `GAP_SHARES` [s]."""

DURATION_SHARES = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.65, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99, 0.999, 1)
DURATIONS_ALONE: Mapping[str, Sequence[float]] = {
    "one": (1, 20, 50, 66, 124, 1016, 4330, 14541, 26782, 46948, 70382, 146438, 233354, 586134, 1787670, 2357863),
    "few": (1, 17, 34, 54, 115, 780, 2524, 6960, 14337, 25250, 55824, 109075, 163582, 428824, 1636151, 2601226),
    "tens": (1, 12, 30, 55, 175, 1464, 2774, 5461, 6750, 10002, 15516, 41612, 61983, 172902, 596248, 1017709),
    "many": (7, 43, 54, 129, 573, 1568, 2421, 2788, 3717, 5003, 5937, 10860, 14450, 46601, 342319, 2051366),
}
"""Quantiles of the durations of jobs with one GPU at `DURATION_SHARES`, by kind of burst [s]."""

DURATIONS_BY_GPUS: Mapping[int, Sequence[float]] = {
    2: (2, 5, 9, 11, 16, 21, 27, 76, 136, 22185, 70009, 199540, 269692, 526126, 1477145, 2582803),
    4: (9, 37, 80, 139, 786, 17382, 56540, 89235, 104514, 149252, 183696, 270027, 440328, 808865, 2452817, 2750674),
    8: (9, 38, 129, 217, 1614, 23605, 104594, 172541, 199990, 235145, 325416, 481390, 599153, 929019, 2096816, 2214025),
    16: (20, 31, 45, 118, 612, 20043, 56563, 94858, 126730, 163521, 198103, 282453, 341341, 977457, 1619658, 1710643),
}
"""Quantiles of the durations of jobs with several GPUs, from 2, 4, 8, or 16 on [s]."""

LIKENESS = 0.83
"""Correlation of the durations in a burst as normal scores, fitted to the trace's intraclass correlation, 0.84."""

# Days with different activity, and hours without submissions.

ACTIVITY_VARIANCE = 0.1  # variance of a day's load relative to the mean load of weekdays or weekends [1]

OUTAGES_PER_DAY = 4 / 80
OUTAGE_HOURS = 3.5
"""Rate [1/day] and mean length [h] of generated periods without submissions.

The trace has four of these periods, of 8.1, 3.7, 2.7 and 1.5 h: 3.5 h lies between their median and their mean.
"""

# The heartbeat: a job of one GPU that a virtual cluster submits every ten minutes.

BEAT_INTERVAL = 600  # time between two beats [s]
BEAT_PHASE = 120  # time of the first beat of an hour [s]
BEAT_STEPS: Mapping[int, float] = {1: 90.9, 2: 6.4, 3: 1.1, 7: 1.6}  # intervals from one beat to the next [%]
BEAT_DURATION = 68.3  # mean duration of a beat [s]
BEAT_SPREAD = 8.7  # standard deviation of the durations of beats [s]
BEAT_TENANT = 3  # index in `TENANTS` of the virtual cluster of the beats
