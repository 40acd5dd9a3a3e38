"""One module per command; what a command needs is imported when it runs."""
