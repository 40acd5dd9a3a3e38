"""Passes over graphs: each a file, each a pass of onnx-ir, with what it requires and ensures."""
