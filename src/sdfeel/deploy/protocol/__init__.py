"""The protocol: `v1` holds the messages of sdfeel_v1.proto; `generate` writes its code."""

from sdfeel.deploy.protocol import sdfeel_v1_pb2 as v1

__all__ = ["PROTOCOL", "v1"]

PROTOCOL = 2  # its version: nodes of different versions refuse each other
