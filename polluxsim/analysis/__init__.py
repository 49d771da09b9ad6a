"""Analysis: tables, figures and reports, from finished runs alone."""
