"""ONNX analyses and passes of anabranch."""
