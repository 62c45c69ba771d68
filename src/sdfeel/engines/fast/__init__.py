"""The fast exact engine for small networks on the processor.

A network is traced (`trace`), given shapes (`plan`), written as C with those shapes as literals
(`layers`, `source`, `kernels/`), compiled once and cached (`compiler`), and called with arrays
(`compiled`). A thread takes a client and carries it to the next aggregation without Python.

What decided, measured on two cores of a Zen 3 by `python benchmarks/fast_kernels.py --numba`, in
processor time of one thread, batch 10, 50 clients, 5 steps a call:

- the step of the 21,840-parameter CNN takes 1/11.7 of a plain PyTorch loop's, its 3x32x32 sister
  1/9.2, the perceptron 784-200-10 1/5.9; on the idle machine two threads did 1.8 times as much as
  one (the CNNs; wall clock, an earlier state of the kernels);
- the second convolution as plain loops in numba takes 2,245 us where these kernels take about 100:
  sums must stay in registers, and vectors of C say so;
- gradients are kept as lists of what is not zero: a 2x2 max-pool passes at most one in four.
"""

from __future__ import annotations

from .compiled import CompiledModel, compile_model
from .errors import Unsupported
from .losses import loss_form
from .rule import Rule

__all__ = ["CompiledModel", "Rule", "Unsupported", "compile_model", "loss_form"]
