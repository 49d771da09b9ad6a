"""Names of policies in tables and figures, as in the publications."""

from __future__ import annotations

POLICY_NAMES = {"Afs": "AFS", "Easy": "EASY", "Fifo": "FIFO", "Srsf": "SRSF", "Srtf": "SRTF"}
"""Names of policies that differ from the names of their classes."""

FIXED_COLOURS = ("Pollux", "Tiresias", "Optimus", "FIFO", "SRTF")
"""Policies that have the colours of the palette, in its order."""

MORE_POLICIES = ("EASY", "LeastAttainedService", "SRSF", "Sia", "Conservative", "Themis", "MaxMin")
"""Further policies with a colour of their own, which many figures show beside those of `FIXED_COLOURS`."""

SHADED_POLICIES = (
    "PolluxByRemaining", "TiresiasL", "OnlineOptimus", "Scaled", "ShortestJobFirst", "Slurm", "Gittins", "Shockwave",
    "AFS", "Multifactor", "Gandiva", "MaxSum", "Autoscaler", "QuasiShortestService", "FinishTimeFairness", "Priority",
    "ElasticFlow", "FairQueues", "Hadar", "MinMakespan", "EarliestDeadline", "Quotas", "GandivaFair", "AlloX",
    "EffectiveScaling", "Muri", "WaterFilling", "FirstCome", "ElasticEdf", "Isolated", "AntMan", "Synergy", "Venn",
    "Proportional", "DominantResourceFairness", "Slaq", "Timeline",
)  # fmt: skip
"""The other shipped policies. They have lighter shades of the colours of the policies above."""

ALIASES = {
    "DRF": "DominantResourceFairness",
    "EDF": "EarliestDeadline",
    "JSA": "EffectiveScaling",
    "LAS": "LeastAttainedService",
    "QSSF": "QuasiShortestService",
    "SJF": "ShortestJobFirst",
    "elastic-edf": "ElasticEdf",
    "optimus-online": "OnlineOptimus",
    "pollux-remaining": "PolluxByRemaining",
}
"""Titles of policies in arenas that are not those of reports."""
