"""A small click model on real rows of a fashion shop: read, train, export, record requests."""
