"""Client of the anabranch inference server."""
