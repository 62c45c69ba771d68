"""How much one request may cost: counted before anything is made, and refused in a sentence.

The unit is about a number that a loop of numpy goes through, so a request takes a second or two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sdfeel.algorithm.events import Event
from sdfeel.errors import InputError
from sdfeel.simulation.settings import Settings

__all__ = ["MOST_WORK", "PLAN_WORK", "Budget", "most_links", "work_of_event", "work_of_round"]

MOST_WORK = 30_000_000
PLAN_WORK = 10 * MOST_WORK  # of the candidates of a plan, which are read once
DENSE, SPARSE = (
    ("full", "partial", "dumbbell"),
    10,
)  # graphs of any number of links; links of a server elsewhere
EVENT, GROUP = 2000, 200  # numbers that the objects of an event, and of a group in it, are worth


def work_of_round(servers: int, clients: int, links: int, settings: Settings) -> int:
    """Count what the clock and an averager go through for one round.

    Every period goes through all clients and servers, every exchange through both ways of every
    link; an averager is made from the eigenvalues of a matrix, and orders its steps.
    """
    scheme = settings.scheme
    _, tau2, alpha = scheme.schedule(settings.schedule).at(0)
    if scheme.servers == "clients":
        servers, links = clients, max(links, clients)
    elif scheme.servers == "one":
        servers, links = 1, 0
    exchanges = servers if settings.averager == "finite-time" else alpha
    periods = tau2 * (EVENT + GROUP * servers + clients)
    return periods + 2 * exchanges * links + exchanges**2 + servers**3 // 100


def most_links(graph: str, servers: int) -> int:
    """Bound the links of a graph that is given by its name."""
    return servers * (servers if graph in DENSE else SPARSE)


def work_of_event(event: Event) -> int:
    """Count what an event went through."""
    clients = sum(len(group.clients) for group in event.groups)
    mixing = 0 if event.mixing is None else event.mixing.models_sent
    return EVENT + GROUP * len(event.groups) + clients + mixing


@dataclass
class Budget:
    """Of one request, or of all that it makes from one file."""

    name: str
    left: int = field(default_factory=lambda: MOST_WORK)

    def spend(self, servers: int, clients: int, links: int, settings: Settings) -> None:
        """Take the work of a round from what is left.

        Raises:
            InputError: that is not enough.
        """
        self.left -= work_of_round(servers, clients, links, settings)
        if self.left < 0:
            tau2, alpha = settings.schedule.at(0)[1:]
            asked = f"{servers} servers, {clients} clients, tau2 {tau2}, alpha {alpha}"
            remedy = "is more than a page works out at a time: `sdfeel clock` and Python do"
            raise InputError(self.name, asked, remedy)
