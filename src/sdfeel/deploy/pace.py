"""The pace of a deployment: rounds, or edges that wait for no other cluster.

Both are the simulator's own objects with their own settings. What a deployment cannot do without
rounds is refused here, by name, before any node starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from sdfeel.algorithm.methods.codecs import codec_table
from sdfeel.algorithm.methods.exchanges import Exchange
from sdfeel.algorithm.paces import Pace, Synchronous
from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.errors import InputError
from sdfeel.tables import choice, to_table

if TYPE_CHECKING:
    from sdfeel.deploy.config import Deployment

__all__ = ["PaceField", "check_pace", "check_trainer", "name_of_pace", "plans", "seconds_of"]

Known = Synchronous | Asynchronous
SHORTEST, LONGEST = 0.001, 1e6  # as all deadlines of a deployment
PACES: dict[str, type[Known]] = {"synchronous": Synchronous, "asynchronous": Asynchronous}


def _read(value: Any) -> Known:
    """A name, or a table with the settings of the pace."""
    pace = choice("pace", Pace, PACES)(value)
    if not isinstance(pace, Known) or type(pace) not in PACES.values():
        raise InputError("pace", pace, f"a deployment has {' and '.join(PACES)}")
    return pace


def _table(pace: Known) -> dict[str, Any]:
    return {key: value for key, value in to_table(pace, PACES).items() if value is not None}


PaceField = Annotated[Known, PlainValidator(_read), PlainSerializer(_table)]


def name_of_pace(pace: Known) -> str:
    return str(_table(pace)["name"])


def seconds_of(deployment: Deployment) -> dict[str, float]:
    """T_d by edge; 0 in rounds."""
    deadline = getattr(deployment.pace, "deadline", None) or 0.0
    names = [edge.name for edge in deployment.edges]
    given = deadline if isinstance(deadline, tuple) else (deadline,) * len(names)
    return dict(zip(names, map(float, given), strict=True))


def plans(deployment: Deployment) -> dict[str, int]:
    """The periods that each edge makes.

    Without rounds the edge with the longest deadline makes iterations / tau1, and the others as
    many as fit into the same time.
    """
    periods = deployment.schedule.iterations // deployment.schedule.tau1
    seconds = seconds_of(deployment)
    longest = max(seconds.values())
    return {
        edge: round(periods * longest / length) if length else periods
        for edge, length in seconds.items()
    }


def check_pace(deployment: Deployment) -> None:
    """Raises InputError for what does not go together."""
    pace, schedule = deployment.pace, deployment.schedule
    if not isinstance(pace, Asynchronous):
        return
    many = len(deployment.edges)
    if pace.deadline is None:
        raise InputError(
            "pace.deadline", None, "seconds for each edge: nobody knows how fast its clients are"
        )
    if isinstance(pace.deadline, tuple) and len(pace.deadline) != many:
        remedy = f"one number, or a list of {many}: one an edge"
        raise InputError("pace.deadline", list(pace.deadline), remedy)
    given = pace.deadline if isinstance(pace.deadline, tuple) else (pace.deadline,)
    for seconds in given:
        if not SHORTEST <= seconds <= LONGEST:
            remedy = f"seconds, from {SHORTEST:g} to {LONGEST:g}"
            raise InputError("pace.deadline", seconds, remedy)
    kind = type(schedule)
    for name in ("averager", "alpha"):
        value = getattr(schedule, name)
        is_of_links = isinstance(value, Exchange)  # it says itself whether it needs rounds
        if not is_of_links and value != kind.model_fields[name].default:
            remedy = "has no meaning without rounds: pace.mixing says how edges mix; remove it"
            raise InputError(f"schedule.{name}", value, remedy)
    if pace.mixing == "stale-weights" and not deployment.codecs.between.exact:
        remedy = (
            "needs swaps on which both ends decide, so that each knows what the other holds; by "
            "stale weights one end moves alone: pace.mixing = 'mean-preserving', or float32"
        )
        raise InputError("codecs.between", codec_table(deployment.codecs.between), remedy)
    check_trainer(pace, deployment.local.trainer)
    check_no_guests(deployment, "periods of edges cannot be compared without rounds")


def check_no_guests(deployment: Deployment, reason: str) -> None:
    """Raises InputError if a client may come to another edge than its own."""
    remedy = f"{reason}, so nobody is a guest"
    for client in deployment.clients:
        if client.fallbacks:
            raise InputError(f"clients.{client.name}.fallbacks", client.fallbacks, remedy)
    for edge in deployment.edges:
        home = {client.name for client in deployment.clients if client.edge == edge.name}
        if strangers := sorted(set(edge.allow or ()) - home):
            raise InputError(f"edges.{edge.name}.allow", strangers, remedy)


def check_trainer(pace: Known, path: str) -> None:
    """Raises InputError if a trainer decides by itself how many steps it makes."""
    if isinstance(pace, Asynchronous) and path.startswith("flower:"):
        remedy = "an app does not say how many steps it makes, which a pace without rounds needs"
        raise InputError("local.trainer", path, remedy)
