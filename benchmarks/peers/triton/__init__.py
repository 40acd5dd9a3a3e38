"""NVIDIA Triton as a peer: its real server binary, from the PyTriton wheel."""

from peers.triton.process import TritonServer, started_triton

__all__ = ["TritonServer", "started_triton"]
