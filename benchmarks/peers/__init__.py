"""Other servers, measured beside this one on the same machine, model and bodies."""
