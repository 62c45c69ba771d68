"""How changes travel with each codec of the table, by its name."""

from __future__ import annotations

from typing import Any

from sdfeel.algorithm.methods.codecs import CODECS
from sdfeel.deploy.wire.packing import packing_of

PACKINGS: dict[str, Any] = {
    name: packing_of(codec()) for name, codec in CODECS.items() if not codec.exact
}
