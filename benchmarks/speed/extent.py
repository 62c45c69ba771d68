"""How much of the benchmark is measured: all of it, or what is quick."""

from __future__ import annotations

from dataclasses import dataclass

from sdfeel.engines.choose import ENGINES
from speed.zoo import LAYERS, ZOO

__all__ = ["FULL", "LOSSES_MEASURED", "OPTIMIZERS_MEASURED", "QUICK", "Extent"]

LOSSES_MEASURED = (
    "mse", "bce", "smooth l1", "label smoothing", "class weights", "own (focal)",
)  # fmt: skip
OPTIMIZERS_MEASURED = ("momentum", "adam", "adamw")


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    seconds  about how long one measurement of one contender takes
    """

    repetitions: int = 7
    seconds: float = 0.6
    clients: int = 50
    settings: tuple[str, ...] = ("mnist", "cifar", "mlp")
    engines: tuple[str, ...] = tuple(reversed(ENGINES))
    all_engines_everywhere: bool = True  # else only where the setting is the first
    variants: bool = True  # also the loop without oneDNN, and engine and product on one thread
    losses: tuple[str, ...] = LOSSES_MEASURED  # beside softmax
    optimizers: tuple[str, ...] = OPTIMIZERS_MEASURED  # beside SGD
    growth: tuple[int, ...] = (10, 50, 200, 1000, 10_000)
    servers: tuple[int, ...] = (2, 10, 50, 100, 500)
    server_clients: int = 1000
    topologies: tuple[int, ...] = (10, 100, 1000)
    widths: tuple[int, ...] = (25, 50, 100, 200, 400, 800)
    periods: tuple[int, ...] = (1, 2, 5, 20)
    memory: tuple[int, int] | None = (10_000, 100)  # clients, servers
    zoo: tuple[str, ...] = tuple(ZOO)  # models for "auto" against the plain loop on all cores
    layers: tuple[str, ...] = tuple(LAYERS)  # models of layers that the fast engine has learned
    zoo_starts: int = 3  # of the processes of each
    zoo_repetitions: int = 9  # in all starts of a model together
    large_repetitions: int = 9  # of models whose steps take long
    rank_steps: int = 120  # 0: no runs over ranks
    profile_steps: int = 100  # 0: no profile


FULL = Extent()
QUICK = Extent(
    repetitions=5,
    seconds=0.2,
    engines=("fast",),
    all_engines_everywhere=False,
    variants=False,
    losses=("bce", "own (focal)"),
    optimizers=("adam",),
    growth=(),
    servers=(),
    topologies=(),
    widths=(),
    periods=(),
    memory=None,
    layers=("resnet8-gn",),
    zoo_starts=1,
    zoo_repetitions=5,
    large_repetitions=3,
    rank_steps=0,
    profile_steps=0,
)
