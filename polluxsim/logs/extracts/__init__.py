"""Small anonymous extracts of logs that do not import, or that are read wrongly."""
