"""The contract between engine and policies: views of cluster and jobs, decisions, and checks of settings."""
