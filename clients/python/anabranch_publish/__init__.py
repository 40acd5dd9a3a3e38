"""Publisher of versions for the anabranch inference server."""
