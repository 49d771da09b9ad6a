"""Shares of time: who is to have how much of which GPU type, and the rounds in which everybody gets it."""
