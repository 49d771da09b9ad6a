"""The physics: step time, statistical efficiency, goodput and their fitting, as pure functions of values."""
