"""Comparing an optimised model with its original, before it may serve."""
