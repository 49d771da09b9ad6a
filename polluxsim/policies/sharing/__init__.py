"""Policies that let several jobs share a GPU, or take turns on it."""
