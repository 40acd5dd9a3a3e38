"""Ranking requests as both doors read, admit and answer them, free of transport."""
