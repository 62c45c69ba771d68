"""Arithmetic over models must not wake threads that spin."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sdfeel.deploy
from sdfeel.deploy.model.vectors import BLOCK, as_vector, norm

FILES = sorted(Path(sdfeel.deploy.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_node_calls_blas(file: Path) -> None:
    # One product of two vectors woke OpenBLAS' pool in every node; its threads spin, and a period
    # of three edges on two cores took 67 ms instead of 26.
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    for node in tree:
        assert not isinstance(node, ast.MatMult), file
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"dot", "vdot", "inner", "matmul", "tensordot", "linalg"}, file


@given(st.sampled_from([1, 7, BLOCK - 1, BLOCK, BLOCK + 1]), st.integers(0, 99))
def test_norm_over_blocks(size: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=size)
    vector = as_vector(values)
    assert norm(vector) == pytest.approx(float(np.linalg.norm(values.astype("<f4"))), rel=1e-6)
