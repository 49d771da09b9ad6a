"""Records of runs: their types and units, Parquet tables, and run folders."""
