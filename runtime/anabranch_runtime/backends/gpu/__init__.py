"""What runs dense graphs on a GPU, whichever library computes them: see docs/gpu.md."""
