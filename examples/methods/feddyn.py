"""FedDyn (Acar et al., 2021): every client's loss gets a linear and a quadratic term.

client   g + alpha (w - w(0)) - l_i;    l_i <- l_i - alpha (w_i - w(0))
server   h <- h - alpha (present / all) (mean - w(0));    w <- mean - h / alpha
"""

from dataclasses import dataclass

from sdfeel import Affine, Method, Row


@dataclass(frozen=True)
class FedDyn(Method):
    alpha: float = 0.1

    rows = {"linear": Row("clients"), "h": Row("servers")}
    needs = {"mean", "clusters", "servers"}

    def gradient(self, g, w, rows, step):
        return g + self.alpha * (w - step.anchor) - rows["linear"]

    @property
    def affine(self):  # optional: the same in numbers, for compiled code
        return Affine(prox=self.alpha, shift={"linear": -1.0})

    def learn(self, moved, move, rows, period):
        rows["linear"] -= self.alpha * moved

    def take(self, before, after, rows, period):
        rows["h"] -= self.alpha * period.fraction * (after - before)
        return after - rows["h"] / self.alpha
