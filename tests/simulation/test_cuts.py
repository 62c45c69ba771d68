"""Clients are cut into blocks: none is left out, and a rule sees whole groups."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sdfeel.simulation.training import cuts

SIZES = st.lists(st.integers(0, 9), max_size=8)


@given(SIZES, st.integers(1, 10), st.booleans())
def test_cuts_go_through_everybody_once_in_order(sizes: list[int], size: int, whole: bool) -> None:
    """Groups below, at and above the size of a block."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    found = [np.arange(len(groups))[cut] for cut in cuts(groups, size, whole)]
    assert [n for part in found for n in part] == list(range(len(groups)))
    for part in found:
        if whole:
            others = np.setdiff1d(np.arange(len(groups)), part)
            assert not set(groups[part]) & set(groups[others])
        else:
            assert 1 <= len(part) <= size
