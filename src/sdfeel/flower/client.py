"""One client of a Flower app: what it is asked, what it may answer, what it remembers.

Message API: records `arrays` and `config` go there; one ArrayRecord and a MetricRecord with
`num-examples` come back. Legacy clients: the records that Flower's own servers send them.

Around every call Python's, numpy's and torch's generators are seeded by (seed, client, round), so
that a resumed run draws what an uninterrupted one does.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import DEFAULT_TTL, ArrayRecord, ConfigRecord, Context, Message, Metadata, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto

from sdfeel.errors import InputError, RunError
from sdfeel.flower.apps import is_legacy
from sdfeel.flower.arrays import ArrayLayout, Misfit, Vector
from sdfeel.flower.generators import seeded

__all__ = ["Answer", "FlowerClient", "Keys", "numbers"]

SERVER = 1  # a node's number, as Flower has it
KINDS = ("train", "evaluate", "get_parameters")
LONGEST = 100  # numbers of a list that a client reports
LONGEST_ERROR = 300  # characters of what an app raises
NOT_IMPLEMENTED = 4  # Flower's status code of a legacy client that does not evaluate

Metrics = dict[str, float]


@dataclass(frozen=True)
class Keys:
    """Names of the records in messages, and of the metric that is a client's weight."""

    arrays: str = "arrays"
    config: str = "config"
    weight: str = "num-examples"


@dataclass(frozen=True)
class Answer:
    """A client's reply.

    model    None where it was asked to evaluate
    metrics  the numbers that it reports, each of a list as `name_0`, `name_1`, ...
    dropped  names of metrics of which no mean can be taken, and why
    """

    model: Vector | None
    examples: int
    metrics: Metrics
    dropped: Mapping[str, str] = field(default_factory=dict)


@dataclass
class FlowerClient:
    """Asks an app for one client. Each question gets a new Context; the state in it is kept.

    name         as errors have it
    number       partition-id, of `clients` in all
    node_config  what the app finds beside partition-id and num-partitions
    """

    app: Any
    layout: ArrayLayout
    name: str
    number: int
    clients: int
    run_config: Mapping[str, Any] = field(default_factory=dict)
    node_config: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    keys: Keys = Keys()
    state: RecordDict = field(default_factory=RecordDict)

    def train(self, model: Vector, number: int, config: Mapping[str, Any]) -> Answer:
        """Ask for a model in return for a model, in the round of that number."""
        content = self._ask("train", "fitins", model, number, config)
        with _About(self, "train", number):
            if is_legacy(self.app):
                _check_status(content, "fitres", "fit")
                arrays = content["fitres.parameters"]
                count = content["fitres.num_examples"].get("num_examples")
                metrics = dict(content["fitres.metrics"])
            else:
                arrays = _only(content.array_records, "ArrayRecord")
                metrics = dict(_only(content.metric_records, "MetricRecord"))
                count = metrics.pop(self.keys.weight, None)
            back = self.layout.vector(arrays, model, named=not is_legacy(self.app))
            return Answer(back, self._examples(count, 1), *numbers(metrics))

    def evaluate(self, model: Vector, number: int, config: Mapping[str, Any]) -> Answer | None:
        """Ask what the client measures of a model; None: it does not evaluate."""
        content = self._ask("evaluate", "evaluateins", model, number, config)
        with _About(self, "evaluate", number):
            if is_legacy(self.app):
                if content["evaluateres.status"]["code"] == NOT_IMPLEMENTED:
                    return None
                _check_status(content, "evaluateres", "evaluate")
                count = content["evaluateres.num_examples"].get("num_examples")
                metrics = {
                    **content["evaluateres.metrics"],
                    "loss": content["evaluateres.loss"]["loss"],
                }
            else:
                metrics = dict(_only(content.metric_records, "MetricRecord"))
                count = metrics.pop(self.keys.weight, None)
            return Answer(None, self._examples(count, 0), *numbers(metrics))

    def first_model(self) -> ArrayRecord:
        """Ask a legacy client for the model that it begins with."""
        with _About(self, "get_parameters", 0):
            content = RecordDict({"getparametersins.config": ConfigRecord()})
            reply = self._call("get_parameters", 0, content)
            _check_status(reply, "getparametersres", "get_parameters")
            return reply["getparametersres.parameters"]

    def remember(self) -> bytes:
        """Return the state that the app keeps; nothing, where it keeps none."""
        proto = recorddict_to_proto(self.state)
        return bytes(proto.SerializeToString(deterministic=True)) if self.state else b""

    def recall(self, memory: bytes) -> None:
        try:
            self.state = recorddict_from_proto(RecordDictProto.FromString(memory))
        except Exception as problem:
            raise InputError(
                f"state of client {self.name}", f"{len(memory)} bytes", f"not readable: {problem}"
            ) from None

    def _ask(
        self, kind: str, ins: str, model: Vector, number: int, config: Mapping[str, Any]
    ) -> RecordDict:
        with _About(self, kind, number):
            legacy = is_legacy(self.app)
            arrays, settings = self.keys.arrays, self.keys.config
            if legacy:
                arrays, settings = (f"{ins}.parameters", f"{ins}.config")
            content = RecordDict(
                {
                    arrays: self.layout.record(model, named=not legacy),
                    settings: ConfigRecord({"server-round": number, **config}),
                }
            )
            return self._call(kind, number, content)

    def _call(self, kind: str, number: int, content: RecordDict) -> RecordDict:
        message = self._message(kind, number, content)
        place = {"partition-id": self.number, "num-partitions": self.clients}
        context = Context(
            run_id=1,
            node_id=message.metadata.dst_node_id,
            node_config={**place, **self.node_config},
            state=self.state,
            run_config=dict(self.run_config),
        )
        with seeded(self.seed, self.number, number, KINDS.index(kind)):
            reply = self.app(message, context)
        self.state = context.state
        if not isinstance(reply, Message):
            raise Misfit(f"a flwr.app.Message must come back, not {type(reply).__name__}")
        if reply.has_error():
            raise Misfit(f"the reply is an error: {reply.error.reason}")
        return reply.content

    def _message(self, kind: str, number: int, content: RecordDict) -> Message:
        """Make a message; the public way to make one needs a Flower process around it."""
        about = Metadata(
            run_id=1,
            message_id=f"{kind}-{number}-{self.number}",
            src_node_id=SERVER,
            dst_node_id=SERVER + 1 + self.number,
            reply_to_message_id="",
            group_id=str(number),
            created_at=time.time(),
            ttl=DEFAULT_TTL,
            message_type=kind,
        )
        return Message(content=content, metadata=about)

    def _examples(self, count: Any, least: int) -> int:
        name = self.keys.weight
        if count is None:
            raise Misfit(f"the reply's MetricRecord has no {name!r}: it is the client's weight")
        is_real = isinstance(count, int | float) and not isinstance(count, bool)
        if not is_real or not math.isfinite(count) or count != int(count) or count < least:
            raise Misfit(f"{name} = {count!r}: a whole number, at least {least}")
        return int(count)


class _About:
    """Name whatever goes wrong inside with client and round."""

    def __init__(self, client: FlowerClient, kind: str, number: int) -> None:
        self._where = f"Flower app of client {client.name}, `{kind}` of round {number}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if isinstance(problem, Misfit):
            raise RunError(f"{self._where}: {problem}") from None
        if isinstance(problem, Exception):
            text = " ".join(str(problem).split())
            if len(text) > LONGEST_ERROR:  # a trace of another process ends with what it is about
                text = f"{text[: LONGEST_ERROR // 3]} ... {text[-2 * LONGEST_ERROR // 3 :]}"
            frames = traceback.extract_tb(trace)
            users = [frame for frame in frames if "site-packages" not in frame.filename]
            place = f"{users[-1].filename}, line {users[-1].lineno}"
            raise RunError(
                f"{self._where}: {type(problem).__name__}: {text} ({place})"
            ) from problem


def _only(records: Mapping[str, Any], kind: str) -> Any:
    if len(records) != 1:
        raise Misfit(f"the reply has {len(records)} of {kind}, and needs one")
    return next(iter(records.values()))


def _check_status(content: RecordDict, res: str, method: str) -> None:
    status = content[f"{res}.status"]
    if status["code"] != 0:
        reason = str(status["message"]) or f"status {status['code']}"
        raise Misfit(f"the legacy client's `{method}` did not succeed: {reason}")


def numbers(metrics: Mapping[str, Any]) -> tuple[Metrics, dict[str, str]]:
    """Take the metrics that a mean can be taken of, and say of the others why not.

    >>> numbers({"loss": 0.5, "per-class": [0.1, 0.9], "note": "ok"})
    ({'loss': 0.5, 'per-class_0': 0.1, 'per-class_1': 0.9}, {'note': 'is no number'})
    """
    taken, dropped = Metrics(), dict[str, str]()
    for name, value in metrics.items():
        is_list = isinstance(value, list | tuple)
        values = list(value) if is_list else [value]
        if len(values) > LONGEST:
            dropped[name] = f"is a list of {len(values)} numbers, more than {LONGEST}"
        elif not all(type(each) in (int, float) for each in values):
            dropped[name] = "is no number"
        elif not all(map(math.isfinite, values)):
            dropped[name] = "is not finite"
        else:
            names = [f"{name}_{at}" for at in range(len(values))] if is_list else [name]
            taken |= {each: float(v) for each, v in zip(names, values, strict=True)}
    return taken, dropped
