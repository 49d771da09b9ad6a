"""The application: the command line, the configuration, and what a person sees of a run."""
