"""Figures from finished runs: one module for each kind, pure functions from tables to a matplotlib `Figure`, one style.

Every function takes `RunGroup`s of runs, each a line, or a table, and the width in print [cm], and returns a `Figure`,
which `style.save` writes. Nothing here touches pyplot or a display. `FIGURE_KINDS` in `request` lists the figures.
"""
