"""Applications as profiles: cards and measured tables are read, checked and fitted."""
