"""Taking lookups out of a graph: what is left runs on buffers of rows that were looked up."""
