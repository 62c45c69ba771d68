"""One client of a Flower app: what it is asked, what it may answer, what it remembers.

Message API: records `arrays` and `config` go there; one ArrayRecord and a MetricRecord with
`num-examples` come back. Legacy clients: the records that Flower's own servers send them.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import DEFAULT_TTL, ConfigRecord, Context, Message, Metadata, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto

from sdfeel.errors import InputError, RunError
from sdfeel.flower.apps import is_legacy
from sdfeel.flower.arrays import ArrayLayout, Misfit, Vector

__all__ = ["Answer", "FlowerClient"]

SERVER = 1  # a node's number, as Flower has it
EXAMPLES = "num-examples"
NOT_IMPLEMENTED = 4  # Flower's status code of a legacy client that does not evaluate

Metrics = dict[str, float]


@dataclass(frozen=True)
class Answer:
    """What a client said; `model` is None where it was asked to evaluate."""

    model: Vector | None
    examples: int
    metrics: Metrics


@dataclass
class FlowerClient:
    """Asks an app for one client. Each question gets a new Context; the state in it is kept.

    name     as errors have it
    number   partition-id, of `clients` in all
    """

    app: Any
    layout: ArrayLayout
    name: str
    number: int
    clients: int
    run_config: Mapping[str, Any] = field(default_factory=dict)
    state: RecordDict = field(default_factory=RecordDict)

    def train(self, model: Vector, number: int, config: Mapping[str, Any]) -> Answer:
        """A model for a model, in the round of that number."""
        content = self._ask("train", "fitins", model, number, config)
        with _About(self, "train", number):
            if is_legacy(self.app):
                _check_status(content, "fitres", "fit")
                arrays = content["fitres.parameters"]
                told = content["fitres.num_examples"].get("num_examples")
                metrics = dict(content["fitres.metrics"])
            else:
                arrays = _only(content.array_records, "ArrayRecord")
                metrics = dict(_only(content.metric_records, "MetricRecord"))
                told = metrics.pop(EXAMPLES, None)
            back = self.layout.vector(arrays, model, named=not is_legacy(self.app))
            return Answer(back, _examples(told, 1), _numbers(metrics))

    def evaluate(self, model: Vector, number: int, config: Mapping[str, Any]) -> Answer | None:
        """What the client measures of a model; None: it does not evaluate."""
        content = self._ask("evaluate", "evaluateins", model, number, config)
        with _About(self, "evaluate", number):
            if is_legacy(self.app):
                if content["evaluateres.status"]["code"] == NOT_IMPLEMENTED:
                    return None
                _check_status(content, "evaluateres", "evaluate")
                told = content["evaluateres.num_examples"].get("num_examples")
                metrics = {
                    **content["evaluateres.metrics"],
                    "loss": content["evaluateres.loss"]["loss"],
                }
            else:
                metrics = dict(_only(content.metric_records, "MetricRecord"))
                told = metrics.pop(EXAMPLES, None)
            return Answer(None, _examples(told, 0), _numbers(metrics))

    def remember(self) -> bytes:
        """The state that the app keeps; nothing, where it keeps none."""
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
            arrays, settings = ("arrays", "config")
            if legacy:
                arrays, settings = (f"{ins}.parameters", f"{ins}.config")
            content = RecordDict(
                {
                    arrays: self.layout.record(model, named=not legacy),
                    settings: ConfigRecord({"server-round": number, **config}),
                }
            )
            message = self._message(kind, number, content)
            context = Context(
                run_id=1,
                node_id=message.metadata.dst_node_id,
                node_config={"partition-id": self.number, "num-partitions": self.clients},
                state=self.state,
                run_config=dict(self.run_config),
            )
            reply = self.app(message, context)
            self.state = context.state
            if not isinstance(reply, Message):
                raise Misfit(f"a flwr.app.Message must come back, not {type(reply).__name__}")
            if reply.has_error():
                raise Misfit(f"the reply is an error: {reply.error.reason}")
            return reply.content

    def _message(self, kind: str, number: int, content: RecordDict) -> Message:
        """The public way to make one needs a Flower process around it."""
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


class _About:
    """Whatever goes wrong inside is named with client and round."""

    def __init__(self, client: FlowerClient, kind: str, number: int) -> None:
        self._where = f"Flower app of client {client.name}, `{kind}` of round {number}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if isinstance(problem, Misfit):
            raise RunError(f"{self._where}: {problem}") from None
        if isinstance(problem, Exception):
            said = " ".join(str(problem).split())[:300]
            frames = traceback.extract_tb(trace)
            own = [frame for frame in frames if "site-packages" not in frame.filename]
            place = f"{own[-1].filename}, line {own[-1].lineno}"
            raise RunError(
                f"{self._where}: {type(problem).__name__}: {said} ({place})"
            ) from problem


def _only(records: Mapping[str, Any], kind: str) -> Any:
    if len(records) != 1:
        raise Misfit(f"the reply has {len(records)} of {kind}, and needs one")
    return next(iter(records.values()))


def _check_status(content: RecordDict, res: str, method: str) -> None:
    status = content[f"{res}.status"]
    if status["code"] != 0:
        said = str(status["message"]) or f"status {status['code']}"
        raise Misfit(f"the legacy client's `{method}` did not succeed: {said}")


def _examples(told: Any, least: int) -> int:
    if told is None:
        raise Misfit(f"the reply's MetricRecord has no {EXAMPLES!r}: it is the client's weight")
    whole = isinstance(told, int | float) and math.isfinite(told) and told == int(told)
    if isinstance(told, bool) or not whole or told < least:
        raise Misfit(f"{EXAMPLES} = {told!r}: a whole number, at least {least}")
    return int(told)


def _numbers(metrics: Mapping[str, Any]) -> Metrics:
    """Those that a mean can be taken of."""
    kinds = (int, float)
    return {name: float(v) for name, v in metrics.items() if type(v) in kinds and math.isfinite(v)}
