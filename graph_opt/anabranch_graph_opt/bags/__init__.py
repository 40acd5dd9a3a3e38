"""Pooling that a lookup can do itself: guessed from the graph, then proven by running it."""
