"""Which lookups leave the graph, and where their ids come from."""
