"""Write the interactive report of finished runs."""
