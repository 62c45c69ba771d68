"""Everything that may go wrong, as an enum; each fault has a case in one of the modules beside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from harness import World


class Fault(Enum):
    CLIENT_KILL = auto()
    CLIENT_STOP = auto()
    CLIENT_CUT = auto()
    CLIENT_SLOW = auto()
    CLIENT_RESTART = auto()
    EDGE_KILL = auto()
    EDGE_STOP = auto()
    EDGE_CUT = auto()
    EDGE_SLOW = auto()
    EDGE_RESTART = auto()
    EDGE_LOST_DISK = auto()
    MODEL_TRUNCATED = auto()
    MODEL_CUT_OFF = auto()
    MODEL_CORRUPTED = auto()
    MODEL_OVERSIZED = auto()
    MODEL_NAN = auto()
    MODEL_WRONG_SHAPE = auto()
    MODEL_WRONG_DTYPE = auto()
    MODEL_WRONG_ROUND = auto()
    MODEL_LATE = auto()
    MODEL_REPLAYED = auto()
    MODEL_WRONG_SAMPLES = auto()
    MODEL_OUT_OF_ORDER = auto()
    LINK_MODEL_NAN = auto()
    LINK_MODEL_CORRUPTED = auto()
    LINK_MODEL_WRONG_SHAPE = auto()
    LINK_DECISION_LOST = auto()
    ALL_REDUCE_DECISION_LOST = auto()
    CERTIFICATE_UNKNOWN = auto()
    CERTIFICATE_OTHER_AUTHORITY = auto()
    CERTIFICATE_EXPIRED = auto()
    CERTIFICATE_MISSING = auto()
    CERTIFICATE_REVOKED = auto()
    CERTIFICATE_WRONG_ROLE = auto()
    CERTIFICATE_WRONG_NAME = auto()
    CALLER_WITHOUT_TLS = auto()
    CLIENT_NOT_ALLOWED = auto()
    CLIENT_WRONG_SAMPLES = auto()
    CLIENT_WRONG_DEPLOYMENT = auto()
    CLIENT_WRONG_SEED = auto()
    CLIENT_TWICE = auto()
    EDGE_WRONG_SCHEDULE = auto()
    EDGE_SECOND_INSTANCE = auto()
    STATE_DISK_FULL = auto()
    STATE_DISK_READ_ONLY = auto()
    LOG_DISK_FULL = auto()
    CHECKPOINT_DAMAGED = auto()
    CHECKPOINT_OTHER_PERIOD = auto()
    CERTIFICATE_STOLEN = auto()
    CERTIFICATE_RAN_OUT = auto()
    EDGE_REVOKED = auto()
    REVOCATION_LIST_MISSING = auto()
    MEASURES_NONSENSE = auto()
    EDGE_BEYOND_THE_END_AT_ONCE = auto()
    EDGE_BEYOND_THE_END = auto()
    EDGE_CLAIMS_THE_END = auto()
    EDGE_REPEATS_ITSELF = auto()
    EDGE_CRAWLS = auto()
    EDGE_SAYS_NOTHING = auto()
    GOSSIP_UNKNOWN_EDGE = auto()
    GOSSIP_UNKNOWN_LINK = auto()
    GOSSIP_UNKNOWN_CLIENT = auto()
    GOSSIP_BEYOND_THE_END = auto()
    LINK_MODEL_HUGE = auto()
    LINK_MODEL_UNASKED = auto()
    LINK_MODEL_TRUNCATED = auto()
    LINK_WORDS_ABOUT_NOTHING = auto()
    EDGE_READS_NOTHING = auto()
    LINK_PROMISE_BROKEN = auto()
    CLIENT_SILENT_STREAMS = auto()
    CLIENT_SAYS_NO_HELLO = auto()
    CLIENT_DOES_NOTHING = auto()
    CLIENT_WRONG_SIZE = auto()
    MODEL_HUGE = auto()
    MODEL_FAR_AWAY = auto()
    MODEL_LONG_DTYPE = auto()
    CLIENT_FLOODS = auto()
    CLIENT_AT_TWO_EDGES = auto()
    CLIENT_SECOND_STREAM = auto()
    WAY_SILENT = auto()
    WAY_SLOW = auto()
    EDGE_POWER_CUT = auto()
    EDGE_RETURNS = auto()
    EDGE_DIES_AFTER_THE_DECISION = auto()
    ALL_REDUCE_EDGE_DIES_AFTER_THE_DECISION = auto()
    EVERYBODY_DIES = auto()
    GOSSIP_FORGED = auto()
    EDGE_SECOND_STREAM = auto()
    BARE_CONNECTIONS = auto()
    EDGE_COMES_AND_SENDS_NOTHING = auto()
    EDGE_COMES_AND_SENDS_NOTHING_FINITE_TIME = auto()
    EDGE_SENDS_AND_DOES_NOT_VOTE = auto()
    EDGE_SENDS_AND_DOES_NOT_VOTE_FINITE_TIME = auto()
    EDGE_MODEL_OF_ANOTHER_VIEW = auto()
    EDGE_REFUSES_EVERY_EXCHANGE = auto()
    EDGE_DOES_EVERY_SECOND_PART = auto()
    EDGE_FLAPS = auto()
    EDGE_ANNOUNCES_ANOTHER_VIEW = auto()
    EDGE_ANNOUNCES_LATE = auto()
    EDGE_CONTRADICTS_ITSELF = auto()
    EDGE_FALSE_EVIDENCE = auto()
    EDGE_ANOTHERS_NAME = auto()
    EDGE_WRONG_PROTOCOL = auto()
    EDGE_WRONG_DEPLOYMENT = auto()
    EDGE_ASKS_FOR_MODELS = auto()
    EDGE_CALLS_WITNESSES = auto()
    EDGE_SAYS_HELLO_AGAIN = auto()
    GOSSIP_LONG_FILE = auto()
    GOSSIP_IMPOSSIBLE_STEPS = auto()
    GOSSIP_ABOUT_ITSELF = auto()
    LINK_MODEL_WRONG_DTYPE = auto()
    LINK_MODEL_OF_NO_VALUES = auto()
    CLIENT_WRONG_PROTOCOL = auto()
    CERTIFICATES_RENEWED_AT_ONCE = auto()
    EDGE_CERTIFICATE_ENDS = auto()
    EDGE_CERTIFICATE_REVOKED = auto()
    CLIENT_CERTIFICATE_ENDS = auto()
    CLOCK_BEHIND = auto()
    CLOCK_AHEAD = auto()
    CLOCK_BACK_AT_A_RESTART = auto()
    CLOCKS_ALL_WRONG = auto()
    DISK_TORN = auto()
    DISKS_ALL_TORN = auto()
    DISK_TORN_AFTER_A_CRASH = auto()
    DISK_FULL_FOR_A_WHILE = auto()
    NETWORK_SPLIT = auto()
    EDGE_SENDS_INTO_THE_VOID = auto()
    CLIENTS_ALL_DIE = auto()
    FILE_NEWER_AT_ONE_EDGE = auto()
    FILE_NEWER_EVERYWHERE = auto()
    CODED_HELD_LOST = auto()
    CODED_HELD_LAST = auto()
    CODED_HELD_RECEIVER_DIES = auto()
    CODED_LEADERS_CHANGE_LOST = auto()
    CODED_LEADERS_CHANGE_LAST = auto()
    CODED_LEADERS_CHANGE_RECEIVER_DIES = auto()
    CODED_FOLLOWERS_CHANGE_LOST = auto()
    CODED_FOLLOWERS_CHANGE_LAST = auto()
    CODED_FOLLOWERS_CHANGE_RECEIVER_DIES = auto()
    CODED_PROMISE_LOST = auto()
    CODED_PROMISE_LAST = auto()
    CODED_PROMISE_RECEIVER_DIES = auto()
    CODED_DECISION_LOST = auto()
    CODED_DECISION_LAST = auto()
    CODED_DECISION_RECEIVER_DIES = auto()
    CODED_OF_ANOTHER_MODEL = auto()
    CODED_OF_ANOTHER_CODEC = auto()
    CODED_WITHOUT_A_BASE = auto()
    EDGE_LIES_ABOUT_WHAT_IT_HOLDS = auto()
    EDGE_BOUND_THAT_CANNOT_BE = auto()


@dataclass
class Case:
    """What happens, in which deployment, and how it must be named afterwards.

    act      called once every edge has finished two periods
    seen     what the fault must be called in an edge's or a client's log (an event), or
             `refused:KIND` for the metric of that name at an edge, or `handshake:REASON` in
             the log of an edge that runs as a program of its own
    without  nodes that the case starts itself, before the others (`before`)
    """

    act: Callable[[World], Awaitable[None]]
    seen: str
    options: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    before: Callable[[World], Awaitable[None]] | None = None
    died: tuple[str, ...] = ()
    delay: float = 0.01


CASES: dict[Fault, Case] = {}


def case(fault: Fault, seen: str, **fields: Any) -> Callable[..., Any]:
    """Enters a coroutine function as what happens in `fault`."""

    def enter(act: Callable[[World], Awaitable[None]]) -> Callable[[World], Awaitable[None]]:
        CASES[fault] = Case(act, seen, **fields)
        return act

    return enter


def refused(world: World, kind: str) -> float:
    """How often edges refused something for this reason."""
    return sum(e.metrics.value("sdfeel_refused_total", kind=kind) for e in world.edges.values())
