"""Agents: what runs beside each job, learns how fast it trains, and chooses its batch size."""
