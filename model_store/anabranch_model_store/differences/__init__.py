"""What one snapshot of a model has that another has not: rows of tables, and weights."""
