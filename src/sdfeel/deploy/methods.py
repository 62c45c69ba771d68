"""The methods of a deployment: the simulator's own files, by the tables of a run.

What cannot work without rounds follows from what a method declares that it needs, and is refused by
name before any node starts. What cannot work on the network is refused where that is known: see
`sdfeel.deploy.topology`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator, ValidationInfo

from sdfeel.algorithm.compatibility import WORDS
from sdfeel.algorithm.methods.averaging import RULES, AveragingRule, GivenRule
from sdfeel.algorithm.methods.codecs import BLOCK, CODECS, Codec, codec_table
from sdfeel.algorithm.methods.corrections import CORRECTIONS, Correction
from sdfeel.algorithm.methods.exchanges import EXCHANGES, Exchange
from sdfeel.algorithm.methods.method import Method
from sdfeel.algorithm.methods.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from sdfeel.deploy.pace import check_no_guests
from sdfeel.errors import InputError, closest, reason
from sdfeel.importing import imported
from sdfeel.tables import choice, name_of, to_table

if TYPE_CHECKING:
    from sdfeel.deploy.config import Deployment

__all__ = [
    "AveragerField",
    "CodecField",
    "CorrectionField",
    "RuleField",
    "ServerOptimizerField",
    "check_methods",
    "methods_of",
]


ROWS = {"z", "y", "common"}  # that travel between a client and its edge, or are worked out there


def _read_server_optimizer(value: Any) -> ServerOptimizer | None:
    """Return the optimizer that a name or a table describes; None for the mean itself."""
    read = choice("server_optimizer", ServerOptimizer, SERVER_OPTIMIZERS, none="mean")
    optimizer: ServerOptimizer | None = read(value)
    if optimizer is not None and type(optimizer) not in SERVER_OPTIMIZERS.values():
        known = ", ".join(SERVER_OPTIMIZERS)
        raise InputError("server_optimizer", optimizer, f"a deployment has mean, {known}")
    return optimizer


def _server_optimizer_table(optimizer: ServerOptimizer | None) -> dict[str, Any]:
    return {"name": "mean"} if optimizer is None else to_table(optimizer, SERVER_OPTIMIZERS)


def _read_correction(value: Any) -> Correction | None:
    """Return the correction that a name or a table describes; None for none."""
    known = dict.fromkeys(CORRECTIONS, Correction)
    correction: Correction | None = choice(
        "correction", Correction, known, none="none", default="two-level"
    )(value)
    return correction


def _read_rule(value: Any) -> str | AveragingRule:
    """The name of a rule, whose settings stand beside it; or one of the user's."""
    if isinstance(value, AveragingRule):
        return value
    if value not in RULES:
        raise InputError("averaging.rule", value, closest(str(value), RULES))
    return str(value)


def _rule_text(rule: str | AveragingRule) -> str:
    return rule if isinstance(rule, str) else name_of(rule)


def _correction_table(correction: Correction | None) -> dict[str, Any]:
    if correction is None:
        return {"name": "none"}
    if type(correction) is not Correction:
        return {"name": name_of(correction)}
    table = {"name": correction.name, "gamma": correction.gamma, "guard": correction.guard}
    table |= {} if correction.limit is None else {"limit": correction.limit}
    return {key: value for key, value in table.items() if value is not None}


def _read_codec(value: Any, info: ValidationInfo) -> Codec:
    codec: Codec = choice(f"codecs.{info.field_name}", Codec, CODECS)(value)
    if type(codec) not in CODECS.values():
        codec.layout(BLOCK)  # or it says that it has none
    return codec


def _read_averager(value: Any) -> str | Exchange:
    """Return the name of an averager, or the rule that a name or a table describes."""
    if isinstance(value, str) and value not in EXCHANGES:
        return value
    rule: Exchange = choice("schedule.averager", Exchange, EXCHANGES)(value)
    if type(rule) not in EXCHANGES.values():
        remedy = f"a deployment has {', '.join(EXCHANGES)} and the averagers of the table"
        raise InputError("schedule.averager", rule, remedy)
    return rule


def averager_table(averager: str | Exchange) -> Any:
    """A name, or the table of a rule."""
    return averager if isinstance(averager, str) else to_table(averager, EXCHANGES)


AveragerField = Annotated[
    str | Exchange, PlainValidator(_read_averager), PlainSerializer(averager_table)
]
RuleField = Annotated[str | AveragingRule, PlainValidator(_read_rule), PlainSerializer(_rule_text)]
CodecField = Annotated[Codec, PlainValidator(_read_codec), PlainSerializer(codec_table)]
CorrectionField = Annotated[
    Correction | None, PlainValidator(_read_correction), PlainSerializer(_correction_table)
]
ServerOptimizerField = Annotated[
    ServerOptimizer | None,
    PlainValidator(_read_server_optimizer),
    PlainSerializer(_server_optimizer_table),
]


def bring_methods(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A file's tables with the user's own methods in place of their import paths.

    Only a file that the user names is read like this; modules are looked for beside it first.
    """
    brought = dict(content)
    if isinstance(codecs := content.get("codecs"), Mapping):
        brought["codecs"] = {
            way: _brought(f"codecs.{way}", codec, Codec, folder) for way, codec in codecs.items()
        }
    averaging = content.get("averaging")
    if isinstance(averaging, Mapping) and "rule" in averaging:
        rule = _brought("averaging.rule", averaging["rule"], AveragingRule, folder)
        brought["averaging"] = {**averaging, "rule": rule}
    if "correction" in content:
        brought["correction"] = _brought("correction", content["correction"], Correction, folder)
    return brought


def _brought(field: str, value: Any, kind: type, folder: Path) -> Any:
    """What an import path makes, with the other settings of its table; anything else as it is."""
    table = dict(value) if isinstance(value, Mapping) else {"name": value}
    path = table.pop("name", None)
    if not isinstance(path, str) or ":" not in path:
        return value
    make = imported(field, path, folder)
    if kind is AveragingRule and not isinstance(make, type) and not table:
        return GivenRule(make)
    try:
        method = make(**table)
    except InputError:
        raise
    except Exception as problem:  # anything that a function of the user's may raise
        raise InputError(field, path, f"cannot be made: {reason(problem)}") from None
    if not isinstance(method, kind):
        raise InputError(field, path, f"must make a {kind.__name__}")
    return method


def methods_of(deployment: Deployment) -> dict[str, Method]:
    """The methods beside the optimizer and the averaging rule, by the setting they come from."""
    methods: dict[str, Method | None] = {"correction": deployment.correction}
    methods |= {"server_optimizer": deployment.server_optimizer}
    return {field: method for field, method in methods.items() if method is not None}


def check_methods(deployment: Deployment) -> None:
    """Raises InputError if a method needs what the deployment's pace breaks."""
    pace = deployment.pace
    for field, method in methods_of(deployment).items():
        for word in sorted(method.needs & pace.breaks):
            remedy = f"needs {WORDS[word]}; not so with the pace {type(pace).__name__}"
            raise InputError(field, method.name, remedy)
    if deployment.correction is not None:
        _check_correction(deployment, deployment.correction.name)


def _check_correction(deployment: Deployment, name: str) -> None:
    """Raises InputError for what only a deployment has, and what no correction goes with."""
    if deployment.correction is not None and not set(deployment.correction.rows) <= ROWS:
        more = ", ".join(sorted(set(deployment.correction.rows) - ROWS))
        remedy = f"remembers {more}: a deployment carries {', '.join(sorted(ROWS))}"
        raise InputError("correction", name, remedy)
    if "rounds" in deployment.pace.breaks:
        raise InputError("correction", name, "works in rounds only in a deployment")
    if deployment.local.trainer.startswith("flower:"):
        remedy = "shifts gradients; a Flower app has an optimiser of its own"
        raise InputError("correction", name, remedy)
    check_no_guests(deployment, "a correction is of clients and their own cluster")
