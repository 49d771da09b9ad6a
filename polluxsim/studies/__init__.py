"""Studies of many runs: sweeps, the arena, cluster sizes, replays of logs, and published numbers."""
