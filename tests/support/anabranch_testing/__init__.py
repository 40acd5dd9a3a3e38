"""What tests of several folders share: small graphs, sinks, started servers."""
