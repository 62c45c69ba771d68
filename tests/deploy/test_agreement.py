"""A link is used by both ends or by neither, or the difference is known and made good.

Whatever happens to messages, streams and edges, and at whatever step: once it is calm, the weighted
mean of the models is the number that it was at the start, exactly, and nobody is in doubt.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import pytest
from ends import Message, Trial
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from histories import PAIR, PATH, STAR, TREE, Shape, begun, drive, make, walk
from sdfeel.deploy.peers import agreement
from sdfeel.deploy.peers.agreement import (
    CROWDED,
    REMEMBERED,
    TABLE,
    Agreement,
    Base,
    Do,
    Id,
    Input,
    Owed,
    Standing,
    Unlisted,
    Word,
)
from sdfeel.deploy.peers.agreement_notes import dump, load

SHAPES = (PAIR, PATH, STAR, TREE)
ID = Id(5, 0, 77)


def _is_beyond(trial: Trial, move: Message) -> bool:
    """One period is enough: those who died in it begin it again."""
    return move[0] == "start" and trial.edges[move[1]].done >= 1


@pytest.mark.parametrize(
    ("shape", "faults", "least"),
    [(PAIR, 2, 5_000), (PATH, 1, 10_000)],
    ids=["pair-two-faults", "path-one-fault"],
)
def test_every_order_of_events(shape: Shape, faults: int, least: int) -> None:
    assert walk(begun(Trial, shape, [*shape]), faults, _is_beyond) > least


class Ends(RuleBasedStateMachine):
    """Anything in any order: hypothesis looks for the shortest order that breaks the mean."""

    @initialize(shape=st.sampled_from(SHAPES))
    def begin(self, shape: Shape) -> None:
        self.trial = make(Trial, shape)

    @rule(data=st.data(), twice=st.booleans())
    def happens(self, data: st.DataObject, twice: bool) -> None:
        move = data.draw(st.sampled_from(self.trial.moves()))
        if twice and move[0] == "deliver":
            self.trial.do(("repeat", *move[1:]))
        self.trial.do(move)

    @invariant()
    def calm_makes_it_good(self) -> None:
        if hasattr(self, "trial"):
            self.trial.check()


TestEnds = Ends.TestCase
TestEnds.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_thousands_of_random_histories() -> None:
    done: dict[Do, int] = {}
    for seed in range(4000):
        trial = drive(Trial, SHAPES, seed)
        trial.check()
        for do, times in trial.acts.items():
            done[do] = done.get(do, 0) + times
    assert all(done.get(do, 0) > 10 for do in Do), f"not everything was tried: {done}"


# Without them everything still comes right, after a deadline instead of at once.
SAVES_TIME = {(Standing.ACTIVE, Input.LOST), (Standing.PREPARED, Input.MET)}
# A trial's coordinator says at once what it has decided, so nobody asks before.
BY_HAND = {(Standing.ACTIVE, Input.ASKED)}
QUIET = [line for line, (state, todo) in TABLE.items() if line[0] is state and not todo]


def _named(line: tuple[Standing, Input]) -> str:
    return f"{line[0].value}, {line[1].value}"


@pytest.mark.parametrize(
    "line", [line for line in TABLE if line not in SAVES_TIME and line not in QUIET], ids=_named
)
def test_every_line_of_the_table_is_needed(
    line: tuple[Standing, Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If nothing happened there, some history would break the mean, leave something open, or no
    link would ever be used.
    """
    monkeypatch.setitem(agreement.TABLE, line, (line[0], ()))
    used = 0
    for seed in range(3000):
        try:
            trial = drive(Trial, SHAPES, seed)
            trial.check()
        except (AssertionError, KeyError, Unlisted):
            return
        used += trial.acts.get(Do.USE, 0)
    assert not used, "nothing was lost without it"


@pytest.mark.parametrize("line", [line for line in TABLE if line not in BY_HAND], ids=_named)
def test_every_line_of_the_table_happens(
    line: tuple[Standing, Input], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(agreement.TABLE, line)
    with pytest.raises(Unlisted, match=re.escape(repr(line[0].value))):
        [drive(Trial, SHAPES, seed).check() for seed in range(3000)]


# Every state and every event.


def _in_state(state: Standing, coordinates: bool) -> tuple[Agreement[Fraction], Any]:
    """An end whose one transaction is in this state."""
    end: Agreement[Fraction] = Agreement()
    end.met("b", life=1, checkpoint=3)
    if coordinates:
        transaction = end.begin("b", ID)
        end.hear("b", Word.PREPARED, ID, 3, b"hash")
    else:
        transaction = end.prepare("b", ID, Fraction(1))[0]
    if state is Standing.ACTIVE:
        return end, transaction
    if coordinates:
        end.voted(transaction, Fraction(1))
    if state is Standing.IN_DOUBT:
        end.deadline(transaction)
    elif state is Standing.UNKNOWN:
        end._move(transaction, Input.ABORT)
    elif state is not Standing.PREPARED:
        end._move(transaction, Input.COMMIT)
        transaction.life, transaction.without = 1, 3
    if state is Standing.SETTLED:
        end.progress("b", 4)
    return end, transaction


PAIRS = [(state, event) for state in Standing for event in Input]
BOTH = pytest.mark.parametrize("coordinates", [True, False], ids=["coordinates", "takes part"])


@BOTH
@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda one: one.value)
def test_an_event_that_the_table_does_not_list_raises(
    state: Standing, event: Input, coordinates: bool
) -> None:
    """It cannot happen, so something is wrong: going on as if nothing was would hide it."""
    end, transaction = _in_state(state, coordinates or state is Standing.ACTIVE)
    assert transaction.state is state
    if (state, event) not in TABLE:
        with pytest.raises(Unlisted, match=f"{state.value!r} and {event.value!r}"):
            end._move(transaction, event)
        assert transaction.state is state, "and nothing has changed"
        return
    actions = end._move(transaction, event)
    after, todo = TABLE[state, event]
    silent = set() if coordinates else {Do.TELL_COMMIT, Do.TELL_ABORT}
    if state is not Standing.ACTIVE:
        assert [action.do for action in actions] == [do for do in todo if do not in silent]
    assert transaction.state is after
    is_open = after not in (Standing.UNKNOWN, Standing.SETTLED)
    assert (("b", ID) in end.open) == is_open


@BOTH
@pytest.mark.parametrize("state", Standing, ids=lambda state: state.value)
@pytest.mark.parametrize("id_", [ID, Id(6, 0, 78)], ids=["known", "unknown"])
def test_nothing_that_comes_from_outside_is_unlisted(
    state: Standing, coordinates: bool, id_: Id
) -> None:
    """A neighbour may say anything at any time, twice, and after it has come in another life."""
    for first, second in product(OUTSIDE, repeat=2):
        end, _ = _in_state(state, coordinates or state is Standing.ACTIVE)
        for happens in (first, first, second, first):
            happens(end, id_)


OUTSIDE: list[Callable[[Agreement[Fraction], Id], Any]] = [
    lambda end, _: end.lost("b"),
    lambda end, _: end.progress("b", 2),
    lambda end, _: end.progress("b", 9),
    lambda end, _: end.remind("b"),
    *(partial(lambda life, end, _: end.met("b", life, 3), life) for life in (1, 2)),
    *(partial(lambda word, end, id_: end.hear("b", word, id_, 3, b"hash"), word) for word in Word),
]


@pytest.mark.parametrize("word", [Word.COMMIT, Word.ABORT], ids=lambda word: word.value)
@pytest.mark.parametrize("state", [Standing.ACTIVE, Standing.PREPARED, Standing.COMMITTED])
def test_a_parent_cannot_decide_on_a_link_that_it_only_names(state: Standing, word: Word) -> None:
    """Two neighbours that agree on it: one passes on an id of ours, the other makes it its own."""
    end, ours = _in_state(state, coordinates=True)
    end.met("c", life=1, checkpoint=3)
    end.prepare("c", ID, Fraction(2))
    end.hear("c", word, ID, 3)
    if state is not Standing.PREPARED:  # as that of a tree's own child would be
        assert ours.state is state


def test_who_leaves_aborts_what_only_it_decides() -> None:
    """In an all-reduce the links below hang on the one above: the parent may have committed."""
    end, above = _in_state(Standing.PREPARED, coordinates=False)
    below = end.begin("c", ID)
    end.hear("c", Word.PREPARED, ID, 3, b"hash")
    end.voted(below, Fraction(2))
    other = end.begin("d", Id(5, 0, 99))
    (action, _) = end.leave()
    assert (action.peer, action.word) == ("d", Word.ABORT)
    assert other.state is Standing.UNKNOWN
    end.hear("b", Word.COMMIT, ID, 3)
    assert above.state is below.state is Standing.COMMITTED


# One end by itself.


def prepared(end: Agreement[Fraction], id_: Id = ID) -> Any:
    end.met("b", life=1, checkpoint=3)
    return end.prepare("b", id_, Fraction(1))[0]


def test_a_promise_is_kept_until_it_is_decided() -> None:
    end: Agreement[Fraction] = Agreement()
    transaction = prepared(end)
    assert end.abort(transaction) == [], "it is not the participant who decides"
    assert transaction.state is Standing.PREPARED
    (action,) = end.met("b", life=1, checkpoint=3)
    assert action.word is Word.ASK


def test_a_coordinator_whose_stream_is_lost_leaves_the_link_out_at_once() -> None:
    end: Agreement[Fraction] = Agreement()
    transaction = end.begin("b", ID)
    (action,) = end.lost("b")
    assert (action.do, transaction.state) == (Do.LEAVE_OUT, Standing.UNKNOWN)


def test_a_participant_cannot_decide_for_the_coordinator() -> None:
    end: Agreement[Fraction] = Agreement()
    end.met("b", life=1, checkpoint=3)
    transaction = end.begin("b", ID)
    for word in (Word.COMMIT, Word.ABORT):
        assert end.hear("b", word, ID) == []
        assert transaction.state is Standing.ACTIVE
    end.hear("b", Word.PREPARED, ID, 3, b"hash")
    assert transaction.vote == b"hash"
    end.voted(transaction, Fraction(1))
    assert end.hear("b", Word.COMMIT, ID) == []
    assert transaction.state is Standing.PREPARED


def test_words_about_nothing_leave_nothing_behind() -> None:
    """A neighbour may say what it likes: nothing grows, and what is unknown was not committed."""
    end: Agreement[Fraction] = Agreement()
    for ballot in range(10_000):
        for word in Word:
            answer = end.hear("b", word, Id(ballot, 0, ballot), ballot)
            assert all(action.word is Word.ABORT for action in answer)
    assert end == Agreement()
    assert not end.open
    assert not end.settled


def test_what_is_settled_is_answered_for_and_does_not_grow() -> None:
    end: Agreement[Fraction] = Agreement()
    end.met("b", life=1, checkpoint=0)
    last = 4 * REMEMBERED
    for period in range(1, last + 1):
        id_ = Id(period, 0, period)
        end.prepare("b", id_, Fraction(1))
        end.hear("b", Word.COMMIT, id_, period - 1)
        end.progress("b", period)
    assert not end.open
    assert len(end.settled) <= REMEMBERED + 1
    (action,) = end.hear("b", Word.ASK, Id(last, 0, last))
    assert action.word is Word.COMMIT
    (action,) = end.hear("b", Word.ASK, Id(last, 0, last + 1))
    assert action.word is Word.ABORT


@pytest.mark.parametrize("period", [lambda _: 5, lambda n: 10**6 - n], ids=["same", "backwards"])
def test_what_is_settled_does_not_grow_whatever_the_other_end_counts(
    period: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without rounds it is the neighbour who says which turn a swap is of."""
    most = 2 * REMEMBERED
    monkeypatch.setattr(agreement, "MOST", most)
    end: Agreement[Fraction] = Agreement()
    end.met("b", life=1, checkpoint=0)
    for ballot in range(1, most + 100):
        id_ = Id(period(ballot), 0, ballot)
        end.prepare("b", id_, Fraction(1))
        end.hear("b", Word.COMMIT, id_, ballot - 1)
        end.progress("b", ballot)
    assert not end.open
    assert len(end.settled) <= most
    (action,) = end.hear("b", Word.ASK, id_)
    assert action.word is Word.COMMIT, "the last ones are answered for"


def test_a_link_with_too_much_open_is_left_out() -> None:
    end: Agreement[Fraction] = Agreement()
    for period in range(1, CROWDED + 1):
        assert not end.is_crowded("b", CROWDED + 1)
        end.deadline(prepared(end, Id(period, 0, period)))
    assert end.is_crowded("b", CROWDED + 1)
    assert not end.is_crowded("c", CROWDED + 1)


def test_a_restart_changes_nothing() -> None:
    end: Agreement[Fraction] = Agreement(checkpoint=6)
    end.deadline(prepared(end))
    used = prepared(end, Id(5, 1, 78))
    end.hear("b", Word.COMMIT, used.id, 3)
    end.owed.append(Owed("c", Fraction(9)))
    changes: list[Fraction] = []
    notes = dump(end, changes)
    again: Agreement[Fraction] = Agreement()
    load(again, notes, changes)
    kept: list[Fraction] = []
    assert {**dump(again, kept), "checkpoint": 7} == notes
    assert kept == changes
    lossy: Agreement[Fraction] = Agreement()
    load(lossy, notes, [None] * len(changes))
    assert not lossy.open
    assert not lossy.owed
    assert list(lossy.settled) == [("b", used.id)], "it is in the model and cannot be taken back"


def test_a_power_cut_at_one_end_that_loses_a_change_keeps_the_mean() -> None:
    """Large changes are files that are not flushed; the checkpoint that names them is."""
    trial = make(Trial, PAIR)
    for link in trial.links:
        trial.do(("connect", *link))
    for name in trial.edges:
        trial.do(("start", name))
    trial._deliver_all()
    (name, *_) = trial.edges
    trial.do(("save", name))
    trial.do(("saved", name))
    trial.do(("crash", name))
    disk = trial.edges[name].disk
    assert [row["used"] for row in disk.notes["open"]] == [True]
    disk.changes = [None] * len(disk.changes)  # type: ignore[list-item]
    trial.check()


def test_in_doubt_below_goes_with_what_is_in_doubt_above() -> None:
    """A power cut took the change of the link to the parent: nobody will decide any more."""
    end: Agreement[Fraction] = Agreement()
    below = end.begin("c", ID)
    end.hear("c", Word.PREPARED, ID)
    end.voted(below, Fraction(2))
    end.deadline(prepared(end))
    end.deadline(below)
    changes: list[Fraction] = []
    notes = dump(end, changes)
    whole: Agreement[Fraction] = Agreement()
    load(whole, notes, changes)
    assert len(whole.open) == 2
    half: Agreement[Fraction] = Agreement()
    load(half, notes, [None if change == 1 else change for change in changes])
    assert not half.open


def base_of(number: int) -> Base[Fraction]:
    return Base(Fraction(number), Fraction(-number))


def both_hold(end: Agreement[Fraction]) -> Fraction:
    return end.bases["b"].mine


def test_what_both_ends_hold_changes_with_the_decision_and_by_nothing_else() -> None:
    """Leaving out, aborting and doubt do not move it; a late decision moves nothing newer."""
    end: Agreement[Fraction] = Agreement()
    ids = [Id(5, exchange, 70 + exchange) for exchange in range(4)]
    first, doubted, aborted, last = (
        end.prepare("b", id_, Fraction(1), base_of(number))[0] for number, id_ in enumerate(ids, 1)
    )
    assert not end.bases
    end.hear("b", Word.COMMIT, first.id, 3)
    assert both_hold(end) == 1
    end.deadline(doubted)
    end.hear("b", Word.ABORT, aborted.id)
    assert both_hold(end) == 1
    assert [base.mine for base in end.undecided_bases("b")] == [2, 4]
    end.hear("b", Word.COMMIT, last.id, 3)
    assert both_hold(end) == 4
    end.hear("b", Word.COMMIT, doubted.id, 3)
    assert both_hold(end) == 4
    changes: list[Fraction] = []
    notes = dump(end, changes)
    again: Agreement[Fraction] = Agreement()
    load(again, notes, changes)
    assert both_hold(again) == 4
    lossy: Agreement[Fraction] = Agreement()
    load(lossy, notes, [None if change == 4 else change for change in changes])
    assert not lossy.bases, "without one of the two a whole model travels"


def test_of_two_swaps_at_once_both_ends_go_on_from_the_same_one() -> None:
    """Each has begun before it heard of the other: the end that leads decides which."""
    ends: dict[str, Agreement[Fraction]] = {"leads": Agreement(), "follows": Agreement()}
    ends["follows"].leads = lambda _: False
    ids = {"leads": Id(5, 0, 70), "follows": Id(9, 0, 80)}
    begun = {name: end.begin("b", ids[name]) for name, end in ends.items()}
    for name, end in ends.items():
        other = ids["follows" if name == "leads" else "leads"]
        end.prepare("b", other, Fraction(1), base_of(other.ballot))
    for name, end in reversed(ends.items()):  # in whichever order decisions come
        end.hear("b", Word.PREPARED, ids[name])
        end.voted(begun[name], Fraction(1), base_of(ids[name].ballot))
        end.commit(begun[name])
        other = ids["follows" if name == "leads" else "leads"]
        end.hear("b", Word.COMMIT, other, 1)
    assert [both_hold(end) for end in ends.values()] == [70, 70]
