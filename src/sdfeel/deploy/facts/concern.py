"""What an operator should look at, as an edge says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

__all__ = ["KINDS", "Concern"]

KINDS = {
    "disk": "its disk takes no checkpoint",
    "samples": "a neighbour's file has other clients, so their link is not used",
    "file": "not all edges have the same deployment file",
    "barred": "an edge has contradicted itself, and its links are not used",
    "few-clients": "its averaging rule holds no liar among so few clients",
    "certificate": "its certificate ends soon, or has ended",
    "revocation-list": "it cannot tell whose certificates are revoked",
}


@dataclass(frozen=True)
class Concern:
    """A warning of an edge: something that is not as it should be, and lasts."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(use_attribute_docstrings=True)

    kind: str
    """What it is about, in a word that does not change."""
    text: str
    """In words, with what to do."""
    about: str = ""
    """The edge that it is about, if that is another one."""

    def __str__(self) -> str:
        return self.text
