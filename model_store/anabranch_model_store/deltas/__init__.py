"""Deltas of a version: found, checked, and turned into what a server applies."""
