"""Modules that every package may use: errors, durations, tables, files, compiled kernels, shipped files."""
