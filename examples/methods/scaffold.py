"""SCAFFOLD (Karimireddy et al., 2020, option II): control variates of the server and its clients.

    client   g - c_i + c;    c_i <- c_i - c + (w(0) - w_i) / H,    H: sum of eta_k in the period
    server   w <- w(0) + eta (mean - w(0));    c <- c + (share of data present) (mean change of c_i)

The mean change of c_i is -c - (mean - w(0)) / H: no further vector goes up, and c goes down.
"""

from dataclasses import dataclass

from sdfeel import Affine, Method, Row


@dataclass(frozen=True)
class Scaffold(Method):
    eta: float = 1.0  # the server's rate

    rows = {"control": Row("clients"), "all": Row("servers")}
    needs = {"rounds", "mean", "affine", "fresh", "dense", "servers"}

    def vectors_down(self, algorithm, is_mixed):
        return 1

    def gradient(self, g, w, rows, step):
        return g - rows["control"] + rows["all"]

    @property
    def affine(self):  # optional: the same in numbers, for compiled code
        return Affine(shift={"control": -1.0, "all": 1.0})

    def learn(self, moved, move, rows, period):
        rows["control"] -= rows["all"] + moved / float(period.reach[0])

    def take(self, before, after, rows, period):
        move = after - before
        rows["all"] -= period.data_fraction * (rows["all"] + move / float(period.reach[0]))
        return before + self.eta * move
