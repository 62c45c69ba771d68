"""Ditto (Li et al., 2021): each client trains a model of its own beside, held near its server's.

    v_i <- v_i - eta_k (gradient of F_i at v_i + factor (v_i - w(0)))

The row `personal` is a model: `history` has its losses and accuracies, on each client's own data
and on the test data.
"""

from dataclasses import dataclass

from sdfeel import Method, Row


@dataclass(frozen=True)
class Ditto(Method):
    factor: float = 0.1

    rows = {"personal": Row("clients", first="model", is_model=True)}

    def gradient(self, g, w, rows, step):
        v = rows["personal"]
        v -= step.eta * (step.gradient_at(v) + self.factor * (v - step.anchor))
        return g
