"""The process that answers requests: doors, catalog, session groups, counters."""
