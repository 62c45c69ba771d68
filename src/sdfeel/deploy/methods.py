"""The methods of a deployment: the simulator's own files, by the tables of a run.

What cannot work without rounds follows from what a method declares that it needs, and is refused by
name before any node starts. What cannot work on the network is refused where that is known: see
`sdfeel.deploy.topology`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from sdfeel.algorithm.compatibility import WORDS
from sdfeel.algorithm.methods.method import Method
from sdfeel.algorithm.methods.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from sdfeel.errors import InputError
from sdfeel.tables import choice, to_table

if TYPE_CHECKING:
    from sdfeel.deploy.config import Deployment

__all__ = ["ServerOptimizerField", "check_methods", "methods_of"]


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


ServerOptimizerField = Annotated[
    ServerOptimizer | None,
    PlainValidator(_read_server_optimizer),
    PlainSerializer(_server_optimizer_table),
]


def methods_of(deployment: Deployment) -> dict[str, Method]:
    """The methods beside the optimizer and the averaging rule, by the setting they come from."""
    methods = {"server_optimizer": deployment.server_optimizer}
    return {field: method for field, method in methods.items() if method is not None}


def check_methods(deployment: Deployment) -> None:
    """Raises InputError if a method needs what the deployment's pace breaks."""
    pace = deployment.pace
    for field, method in methods_of(deployment).items():
        for word in sorted(method.needs & pace.breaks):
            remedy = f"needs {WORDS[word]}; not so with the pace {type(pace).__name__}"
            raise InputError(field, method.name, remedy)
