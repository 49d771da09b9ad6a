"""What is known of applications: cards and measured tables, read, checked and fitted, as profiles to simulate with."""
