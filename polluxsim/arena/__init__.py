"""Policies against each other, on named scenarios."""
