"""Compare policies on named scenarios."""
