"""Training that goes on while the model is served: every hour of the log becomes a delta."""
