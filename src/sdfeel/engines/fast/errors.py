"""Why a network, a loss or a machine cannot use the fast engine."""

from __future__ import annotations

from sdfeel.errors import SdfeelError


class Unsupported(SdfeelError):  # noqa: N818 - the word a reader looks for
    """A model or setting that the engine cannot do; the caller takes another engine."""

    def __init__(self, reason: str) -> None:
        self.reason = " ".join(reason.split())
        super().__init__(self.reason)
