"""Bounds on the best possible schedule: numbers that no schedule of a world can beat."""
