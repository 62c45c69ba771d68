"""One cache for the whole run of the tests, away from the user's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SDFEEL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
