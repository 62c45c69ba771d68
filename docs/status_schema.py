"""The JSON schema of `sdfeel status --json`: `python docs/status_schema.py`, or `--check`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sdfeel.deploy.operate.status import schema

FILE = Path(__file__).parent / "status.schema.json"


def main() -> None:
    """Write the schema beside this file, or see whether it is as the code says."""
    text = json.dumps(schema(), indent=2) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text, encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != text:
        sys.exit(f"{FILE.name} is not as the code says: run python docs/{Path(__file__).name}")


if __name__ == "__main__":
    main()
