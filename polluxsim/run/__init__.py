"""One run, from its configuration to its folder; and forks of finished runs."""
