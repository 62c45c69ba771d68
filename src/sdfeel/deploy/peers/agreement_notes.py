"""An agreement in checkpoints: names and numbers as JSON, changes by their place in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sdfeel.deploy.peers.agreement import Agreement, Base, Id, Owed, Standing, Transaction

__all__ = ["dump", "load"]

Change = TypeVar("Change")


def dump(agreement: Agreement[Change], changes: list[Change]) -> dict[str, Any]:
    """A new checkpoint begins: what it must say of the agreement. Appends to `changes`."""
    agreement.checkpoint += 1

    def put(change: Change | None) -> int:
        assert change is not None  # noqa: S101 - whoever is prepared has one
        changes.append(change)
        return len(changes) - 1

    def put_once(change: Change) -> int:
        return changes.index(change) if change in changes else put(change)

    return {
        "checkpoint": agreement.checkpoint,
        "open": [
            {
                "peer": t.peer,
                "id": list(t.id),
                "coordinates": t.coordinates,
                "used": t.state is Standing.COMMITTED,
                "life": t.life,
                "without": t.without,
                "own": t.own,
                "change": put(t.change),
            }
            for t in agreement.open.values()
            if t.state is not Standing.ACTIVE
        ],
        "settled": [[peer, *id_, own] for (peer, id_), own in agreement.settled.items()],
        "owed": [[each.peer, put(each.change)] for each in agreement.owed],
        "bases": [
            [peer, put_once(base.mine), put_once(base.theirs)]
            for peer, base in agreement.bases.items()
        ],
        "lives": agreement.lives(),
    }


def load(
    agreement: Agreement[Change], notes: dict[str, Any], changes: Sequence[Change | None]
) -> None:
    """Restart from this checkpoint; a change that was lost with a disk's cache is None.

    What was used is in the checkpoint's model. Without its change it cannot be taken back any more,
    so it counts as settled: the other end hears that it was used. What was in doubt is forgotten.
    Without what both ends held, whole models travel next.
    """
    agreement.checkpoint = int(notes["checkpoint"])
    agreement.known_lives = {peer: int(life) for peer, life in notes.get("lives", {}).items()}
    for peer, *id_, own in notes["settled"]:
        agreement.settled[peer, _id(id_)] = int(own)
    for row in notes["open"]:
        change = changes[row["change"]]
        if change is not None:
            transaction = Transaction(
                peer=row["peer"],
                id=_id(row["id"]),
                coordinates=bool(row["coordinates"]),
                state=Standing.COMMITTED if row["used"] else Standing.IN_DOUBT,
                change=change,
                life=int(row["life"]),
                without=int(row["without"]),
                own=int(row["own"]),
            )
            agreement.open[transaction.peer, transaction.id] = transaction
        elif row["used"]:
            agreement.settled[row["peer"], _id(row["id"])] = int(row["own"])
    _drop_orphans(agreement)
    for peer, place in notes["owed"]:
        owed = changes[place]
        if owed is not None:
            agreement.owed.append(Owed(peer, owed))

    for peer, *places in notes.get("bases", ()):
        mine, theirs = (changes[place] for place in places)
        if mine is not None and theirs is not None:
            agreement.bases[peer] = Base(mine, theirs)


def _id(numbers: Sequence[int]) -> Id:
    period, exchange, ballot = numbers
    return Id(int(period), int(exchange), int(ballot))


def _drop_orphans(agreement: Agreement[Change]) -> None:
    """Without the link above, nobody would ever decide what is in doubt below."""
    above = {id_ for (_, id_), t in agreement.open.items() if not t.coordinates}
    for key, transaction in list(agreement.open.items()):
        is_below = transaction.coordinates and transaction.state is Standing.IN_DOUBT
        if is_below and transaction.id not in above:
            del agreement.open[key]
