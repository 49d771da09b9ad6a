"""Slurm's decisions: its main scheduler, sched/backfill and select/cons_tres, as functions of plain values."""
