"""Repositories on other machines: reached by URL, mirrored as a skeleton, fetched when needed."""
