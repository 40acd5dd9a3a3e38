"""The process that decides what is served: repository, epochs, admin and metrics ports."""
