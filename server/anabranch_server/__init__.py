"""The front doors and processes of the anabranch inference server."""
