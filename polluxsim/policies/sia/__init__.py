"""Sia: chooses types, GPUs and batch sizes of all jobs by an integer programme."""
