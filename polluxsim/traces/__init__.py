"""Traces: what was measured or logged elsewhere, read, checked and kept in one form."""
