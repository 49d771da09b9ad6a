"""Names of policies in tables and figures, as in the publications."""

from __future__ import annotations

POLICY_NAMES = {"Afs": "AFS", "Easy": "EASY", "Fifo": "FIFO", "Srsf": "SRSF", "Srtf": "SRTF"}
"""Names of policies that differ from the names of their classes."""

FIXED_COLOURS = ("Pollux", "Tiresias", "Optimus", "FIFO", "SRTF")
"""Policies that have the same colour in all figures, in the order of the palette."""
