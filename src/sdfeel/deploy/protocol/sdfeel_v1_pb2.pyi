# mypy: ignore-errors
# ruff: noqa
# fmt: off
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Stage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SWAP: _ClassVar[Stage]
    UP: _ClassVar[Stage]
    DOWN: _ClassVar[Stage]
    LENT: _ClassVar[Stage]
    OFFER: _ClassVar[Stage]
    ANSWER: _ClassVar[Stage]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCEPTED: _ClassVar[Verdict]
    LATE: _ClassVar[Verdict]
    REFUSED: _ClassVar[Verdict]

class Word(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PREPARED: _ClassVar[Word]
    COMMIT: _ClassVar[Word]
    ABORT: _ClassVar[Word]
    ASK: _ClassVar[Word]
    REFUSE: _ClassVar[Word]
SWAP: Stage
UP: Stage
DOWN: Stage
LENT: Stage
OFFER: Stage
ANSWER: Stage
ACCEPTED: Verdict
LATE: Verdict
REFUSED: Verdict
PREPARED: Word
COMMIT: Word
ABORT: Word
ASK: Word
REFUSE: Word

class Hello(_message.Message):
    __slots__ = ("protocol", "name", "deployment", "samples", "done", "incarnation", "checkpoint", "values", "settings", "weights", "nonce", "certificate", "proof")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    name: str
    deployment: str
    samples: int
    done: int
    incarnation: int
    checkpoint: int
    values: int
    settings: _containers.RepeatedCompositeFieldContainer[Setting]
    weights: str
    nonce: bytes
    certificate: bytes
    proof: bytes
    def __init__(self, protocol: _Optional[int] = ..., name: _Optional[str] = ..., deployment: _Optional[str] = ..., samples: _Optional[int] = ..., done: _Optional[int] = ..., incarnation: _Optional[int] = ..., checkpoint: _Optional[int] = ..., values: _Optional[int] = ..., settings: _Optional[_Iterable[_Union[Setting, _Mapping]]] = ..., weights: _Optional[str] = ..., nonce: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Setting(_message.Message):
    __slots__ = ("name", "value", "is_default")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    is_default: bool
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., is_default: bool = ...) -> None: ...

class Measure(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class ModelHeader(_message.Message):
    __slots__ = ("period", "exchange", "values", "dtype", "sha256", "samples", "view", "stage", "data", "base", "ballot", "measures", "steps", "staleness", "counts", "trained", "epoch", "learned", "bound")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEARNED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    period: int
    exchange: int
    values: int
    dtype: str
    sha256: bytes
    samples: int
    view: str
    stage: Stage
    data: bytes
    base: bytes
    ballot: int
    measures: _containers.RepeatedCompositeFieldContainer[Measure]
    steps: int
    staleness: int
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    trained: float
    epoch: int
    learned: int
    bound: float
    def __init__(self, period: _Optional[int] = ..., exchange: _Optional[int] = ..., values: _Optional[int] = ..., dtype: _Optional[str] = ..., sha256: _Optional[bytes] = ..., samples: _Optional[int] = ..., view: _Optional[str] = ..., stage: _Optional[_Union[Stage, str]] = ..., data: _Optional[bytes] = ..., base: _Optional[bytes] = ..., ballot: _Optional[int] = ..., measures: _Optional[_Iterable[_Union[Measure, _Mapping]]] = ..., steps: _Optional[int] = ..., staleness: _Optional[int] = ..., counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ..., trained: _Optional[float] = ..., epoch: _Optional[int] = ..., learned: _Optional[int] = ..., bound: _Optional[float] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("edge", "turns", "steps")
    EDGE_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    edge: str
    turns: int
    steps: float
    def __init__(self, edge: _Optional[str] = ..., turns: _Optional[int] = ..., steps: _Optional[float] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("period", "first", "steps", "model", "seconds", "epoch", "counted")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    period: int
    first: int
    steps: int
    model: ModelHeader
    seconds: float
    epoch: int
    counted: int
    def __init__(self, period: _Optional[int] = ..., first: _Optional[int] = ..., steps: _Optional[int] = ..., model: _Optional[_Union[ModelHeader, _Mapping]] = ..., seconds: _Optional[float] = ..., epoch: _Optional[int] = ..., counted: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("period", "verdict", "reason")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    period: int
    verdict: Verdict
    reason: str
    def __init__(self, period: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class Row(_message.Message):
    __slots__ = ("name", "model")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    model: ModelHeader
    def __init__(self, name: _Optional[str] = ..., model: _Optional[_Union[ModelHeader, _Mapping]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("period",)
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    period: int
    def __init__(self, period: _Optional[int] = ...) -> None: ...

class FromClient(_message.Message):
    __slots__ = ("hello", "model", "chunk")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    model: ModelHeader
    chunk: Chunk
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., model: _Optional[_Union[ModelHeader, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class FromEdge(_message.Message):
    __slots__ = ("hello", "task", "chunk", "receipt", "finish", "row")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    task: Task
    chunk: Chunk
    receipt: Receipt
    finish: Finish
    row: Row
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., row: _Optional[_Union[Row, _Mapping]] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("period", "exchange", "word", "reason", "ballot", "checkpoint", "sha256", "hops")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    WORD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    period: int
    exchange: int
    word: Word
    reason: str
    ballot: int
    checkpoint: int
    sha256: bytes
    hops: int
    def __init__(self, period: _Optional[int] = ..., exchange: _Optional[int] = ..., word: _Optional[_Union[Word, str]] = ..., reason: _Optional[str] = ..., ballot: _Optional[int] = ..., checkpoint: _Optional[int] = ..., sha256: _Optional[bytes] = ..., hops: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("done", "checkpoint", "waiting", "paused", "leaving", "counts")
    DONE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    done: int
    checkpoint: int
    waiting: bool
    paused: bool
    leaving: bool
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, done: _Optional[int] = ..., checkpoint: _Optional[int] = ..., waiting: bool = ..., paused: bool = ..., leaving: bool = ..., counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class LinkState(_message.Message):
    __slots__ = ("edge", "number", "up", "done", "certificate", "signature", "clients", "steps", "life", "file")
    class ClientsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EDGE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    edge: str
    number: int
    up: _containers.RepeatedScalarFieldContainer[str]
    done: int
    certificate: bytes
    signature: bytes
    clients: _containers.ScalarMap[str, int]
    steps: float
    life: int
    file: str
    def __init__(self, edge: _Optional[str] = ..., number: _Optional[int] = ..., up: _Optional[_Iterable[str]] = ..., done: _Optional[int] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., clients: _Optional[_Mapping[str, int]] = ..., steps: _Optional[float] = ..., life: _Optional[int] = ..., file: _Optional[str] = ...) -> None: ...

class Announce(_message.Message):
    __slots__ = ("period", "view")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    period: int
    view: str
    def __init__(self, period: _Optional[int] = ..., view: _Optional[str] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ("first", "second")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    first: LinkState
    second: LinkState
    def __init__(self, first: _Optional[_Union[LinkState, _Mapping]] = ..., second: _Optional[_Union[LinkState, _Mapping]] = ...) -> None: ...

class Vouch(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Held(_message.Message):
    __slots__ = ("sha256",)
    SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    def __init__(self, sha256: _Optional[bytes] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("period", "ballot", "counts")
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    period: int
    ballot: int
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, period: _Optional[int] = ..., ballot: _Optional[int] = ..., counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class LinkMessage(_message.Message):
    __slots__ = ("hello", "model", "chunk", "decision", "progress", "state", "announce", "wanted", "vouch", "evidence", "held")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    VOUCH_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    model: ModelHeader
    chunk: Chunk
    decision: Decision
    progress: Progress
    state: LinkState
    announce: Announce
    wanted: Wanted
    vouch: Vouch
    evidence: Evidence
    held: Held
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., model: _Optional[_Union[ModelHeader, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., decision: _Optional[_Union[Decision, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., state: _Optional[_Union[LinkState, _Mapping]] = ..., announce: _Optional[_Union[Announce, _Mapping]] = ..., wanted: _Optional[_Union[Wanted, _Mapping]] = ..., vouch: _Optional[_Union[Vouch, _Mapping]] = ..., evidence: _Optional[_Union[Evidence, _Mapping]] = ..., held: _Optional[_Union[Held, _Mapping]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("nonce", "life", "since")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    life: int
    since: int
    def __init__(self, nonce: _Optional[bytes] = ..., life: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("edge", "period", "periods", "phase", "ready", "clients", "expected", "links", "seconds_per_period", "disagreement", "refused", "late", "measures", "certificate_hours", "certificate", "proof", "phases", "memory", "pace", "steps", "life", "now", "warnings", "facts", "members")
    EDGE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    PERIODS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_PER_PERIOD_FIELD_NUMBER: _ClassVar[int]
    DISAGREEMENT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_HOURS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    edge: str
    period: int
    periods: int
    phase: str
    ready: bool
    clients: _containers.RepeatedScalarFieldContainer[str]
    expected: int
    links: _containers.RepeatedCompositeFieldContainer[LinkStatus]
    seconds_per_period: float
    disagreement: float
    refused: int
    late: int
    measures: _containers.RepeatedCompositeFieldContainer[Measure]
    certificate_hours: float
    certificate: bytes
    proof: bytes
    phases: _containers.RepeatedCompositeFieldContainer[Measure]
    memory: int
    pace: str
    steps: float
    life: int
    now: float
    warnings: _containers.RepeatedCompositeFieldContainer[Warning]
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, edge: _Optional[str] = ..., period: _Optional[int] = ..., periods: _Optional[int] = ..., phase: _Optional[str] = ..., ready: bool = ..., clients: _Optional[_Iterable[str]] = ..., expected: _Optional[int] = ..., links: _Optional[_Iterable[_Union[LinkStatus, _Mapping]]] = ..., seconds_per_period: _Optional[float] = ..., disagreement: _Optional[float] = ..., refused: _Optional[int] = ..., late: _Optional[int] = ..., measures: _Optional[_Iterable[_Union[Measure, _Mapping]]] = ..., certificate_hours: _Optional[float] = ..., certificate: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., phases: _Optional[_Iterable[_Union[Measure, _Mapping]]] = ..., memory: _Optional[int] = ..., pace: _Optional[str] = ..., steps: _Optional[float] = ..., life: _Optional[int] = ..., now: _Optional[float] = ..., warnings: _Optional[_Iterable[_Union[Warning, _Mapping]]] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class Warning(_message.Message):
    __slots__ = ("kind", "about", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    about: str
    text: str
    def __init__(self, kind: _Optional[str] = ..., about: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("number", "time", "kind", "fields", "count")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    number: int
    time: float
    kind: str
    fields: str
    count: int
    def __init__(self, number: _Optional[int] = ..., time: _Optional[float] = ..., kind: _Optional[str] = ..., fields: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "guest", "certificate_hours", "measures")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GUEST_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_HOURS_FIELD_NUMBER: _ClassVar[int]
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    name: str
    guest: bool
    certificate_hours: float
    measures: _containers.RepeatedCompositeFieldContainer[Measure]
    def __init__(self, name: _Optional[str] = ..., guest: bool = ..., certificate_hours: _Optional[float] = ..., measures: _Optional[_Iterable[_Union[Measure, _Mapping]]] = ...) -> None: ...

class LinkStatus(_message.Message):
    __slots__ = ("peer", "up", "used", "skipped", "disagreement", "sent", "received")
    PEER_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    DISAGREEMENT_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    peer: str
    up: bool
    used: int
    skipped: int
    disagreement: float
    sent: int
    received: int
    def __init__(self, peer: _Optional[str] = ..., up: bool = ..., used: _Optional[int] = ..., skipped: _Optional[int] = ..., disagreement: _Optional[float] = ..., sent: _Optional[int] = ..., received: _Optional[int] = ...) -> None: ...
