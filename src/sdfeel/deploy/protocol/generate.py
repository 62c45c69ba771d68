"""Writes the Python code of the protocol from its .proto file.

python -m sdfeel.deploy.protocol.generate
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def generate() -> int:
    """Runs protoc (from the development package `grpcio-tools`); its exit status."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    status = int(
        protoc.main(
            ["protoc", f"-I{HERE}", f"--python_out={HERE}", f"--pyi_out={HERE}", "sdfeel_v1.proto"]
        )
    )
    for written in (HERE / "sdfeel_v1_pb2.py", HERE / "sdfeel_v1_pb2.pyi"):
        # Generated code is not held to the project's rules; its types are still used.
        written.write_text(
            "# mypy: ignore-errors\n# ruff: noqa\n# fmt: off\n" + written.read_text()
        )
    return status


if __name__ == "__main__":
    sys.exit(generate())
