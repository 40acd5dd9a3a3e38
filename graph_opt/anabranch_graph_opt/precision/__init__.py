"""Fewer bits for the dense part of a graph: int8 layers with scales that were calibrated."""
