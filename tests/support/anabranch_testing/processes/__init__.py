"""Small processes that stand in for the parts of a server, to be started by their module name."""
