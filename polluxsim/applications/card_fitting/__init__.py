"""From measured tables to a profile card."""
