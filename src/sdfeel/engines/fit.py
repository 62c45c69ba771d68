"""Whether model, loss, metrics and data fit: tried on a few samples before anything is trained."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it
from torch.nn.parameter import is_lazy

from sdfeel.data.clients import ClientData
from sdfeel.engines.parameters import is_table
from sdfeel.errors import InputError, reason
from sdfeel.tables import name_of
from sdfeel.trees import Tree, called, leaves, mapped

# loss(outputs, targets) -> the mean over the batch
Loss = Callable[[Any, Any], Tensor]

# What torch raises where shapes, dtypes or arguments do not fit.
MISFITS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


def whole(model: nn.Module, inputs: Callable[[], Tree], seed: int) -> nn.Module:
    """A model whose lazy layers have seen a sample; one without such layers as it is."""
    if not any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        return model
    model, sample = copy.deepcopy(model), inputs()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            training, _ = model.training, called(model.eval(), sample)
    except Exception as problem:
        raise misfit(model, sample, problem) from None
    return model.train(training)


def check_loss(loss: Loss) -> None:
    """Refuse what is no loss, or one that would not be trained as it is meant."""
    if not callable(loss):
        raise InputError("loss", loss, "a function (outputs, targets), such as F.mse_loss")
    if isinstance(loss, type):
        raise InputError("loss", loss.__name__, f"an object, not its class: {loss.__name__}()")
    if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise InputError(
            "loss",
            name_of(loss),
            "has parameters, which are not trained: make them part of the model, or freeze them "
            "with loss.requires_grad_(False)",
        )


def check_fit(model: nn.Module, loss: Loss, data: ClientData) -> None:
    """Try one forward pass and one loss on two samples, and look at the labels of all."""
    inputs, targets = data.part(slice(2))
    outputs = _outputs(model, inputs)
    if loss is F.cross_entropy or _wants_labels(loss, data.targets):
        _check_classes(outputs, data)
    try:
        with warnings.catch_warnings():
            # Outputs (n, 1) against targets (n,) would be broadcast to n x n, and learn nothing.
            warnings.filterwarnings("error", "Using a target size")
            value = loss(outputs, targets)
    except (*MISFITS, UserWarning) as problem:
        raise InputError(
            "model",
            f"outputs of shape {_shape(outputs)}",
            f"do not fit targets of shape {_shape(targets)} in the loss: {reason(problem)}",
        ) from None
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InputError("loss", type(value).__name__, "must return one number, the batch's mean")
    if any(
        tensor.ndim == 0 or len(tensor) != len(leaves(targets)[0]) for tensor in leaves(outputs)
    ):
        raise InputError(
            "model",
            f"outputs of shape {_shape(outputs)}",
            "every tensor that the model returns must have the samples of a batch along its first "
            "dimension",
        )
    _check_is_a_mean(loss, outputs, targets)
    _check_is_paired(loss, outputs, targets)
    _check_has_gradient(loss, outputs, targets)


def check_training_pass(model: nn.Module, data: ClientData, batch_size: int) -> None:
    """Make a forward pass in training mode, with the smallest batch.

    Batch normalisation refuses a batch of one sample. And a table of whole numbers that a pass
    changes would not be that of a client: models are vectors of real numbers and counters.
    """
    client = int(data.samples.argmin())
    count = min(int(data.samples[client]), batch_size)
    inputs = mapped(lambda tensor: tensor[:batch_size], data.client(client)[0])
    trial = copy.deepcopy(model).train()
    before = {name: buffer.clone() for name, buffer in trial.named_buffers() if is_table(buffer)}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            called(trial, inputs)
    except Exception as problem:
        raise InputError(
            "model",
            type(model).__name__,
            f"cannot train on a batch of {count}, as client {client} has it: {reason(problem)}",
        ) from None
    after = dict(trial.named_buffers())
    for name, table in before.items():
        if not torch.equal(table, after[name]):
            raise InputError(
                "model",
                name,
                "a buffer with several whole numbers that training changes: servers average real "
                "numbers and single counters; make it a floating buffer",
            )


def check_values(
    model: nn.Module, metrics: Mapping[str, Callable[[Any, Any], Any]], data: ClientData
) -> None:
    """Refuse a metric that gives several numbers; one that fails on two samples may be right."""
    inputs, targets = data.part(slice(2))
    outputs = _outputs(model, inputs)
    for name, metric in metrics.items():
        try:
            value = metric(outputs, targets)
            size = math.prod(getattr(value, "shape", ()))
        except Exception:  # noqa: S112 - it is asked again, on more samples
            continue
        if size != 1 or isinstance(value, tuple | list | dict | str | None):
            shown = list(value.shape) if hasattr(value, "shape") else type(value).__name__
            raise InputError(f"metrics[{name!r}]", shown, "must give one number for all samples")


def _outputs(model: nn.Module, inputs: Tree) -> Tree:
    trial = copy.deepcopy(model).eval()
    try:
        with torch.no_grad():
            return called(trial, inputs)
    except Exception as problem:
        raise misfit(model, inputs, problem) from None


def misfit(model: nn.Module, inputs: Tree, problem: Exception) -> InputError:
    """Say why a model does not take inputs, in which line of the user's, and what may help."""
    kinds = {tensor.dtype for tensor in leaves(inputs)}
    verb, hint = "does not take", ""
    if not isinstance(problem, MISFITS):
        verb = "fails on"  # a mistake in its code
    elif kinds == {torch.uint8}:
        hint = "; bytes become real numbers by sdfeel.data.Pixels(images)"
    elif not any(kind.is_floating_point for kind in kinds):
        hint = "; whole numbers stay whole, as ids do: .astype(np.float32) makes them real"
    elif all(tensor.ndim == 1 for tensor in leaves(inputs)):
        hint = "; a sample is one number each: inputs[:, None] makes it a vector of one"
    return InputError(
        "model",
        type(model).__name__,
        f"{verb} inputs of shape {_shape(inputs)}: {reason(problem)}{hint}",
    )


def _check_is_a_mean(loss: Loss, outputs: Tree, targets: Tree) -> None:
    """A sample twice has the mean of one; its sum is twice that."""

    def of(count: int) -> float:
        drawn = [0] * count
        pair = (mapped(lambda tensor: tensor[drawn], tree) for tree in (outputs, targets))
        return float(loss(*pair))

    try:
        single, double = of(1), of(2)
    except Exception:
        return
    if single and math.isfinite(single) and math.isclose(double, 2 * single, rel_tol=1e-4):
        raise InputError(
            "loss",
            name_of(loss),
            "adds up over the batch; it must be the batch's mean, such as reduction='mean'",
        )


def _check_is_paired(loss: Loss, outputs: Tree, targets: Tree) -> None:
    """Refuse a loss that holds every output against every target: it learns nothing but the mean.

    Outputs (n, 1) and targets (n,) are broadcast to n x n, in which their order does not show.
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return
    is_column = outputs.ndim == targets.ndim + 1 and outputs.shape[-1] == 1
    if not is_column or len(targets) < 2 or not targets.is_floating_point():
        return
    first = torch.arange(len(outputs)).to(outputs).reshape(outputs.shape)
    try:
        in_order, turned = float(loss(first, first[:, 0])), float(loss(first, first[:, 0].flip(0)))
    except MISFITS:  # it wants other numbers than these
        return
    if math.isclose(in_order, turned, rel_tol=1e-9):
        raise InputError(
            "targets",
            tuple(targets.shape),
            f"are broadcast against outputs of shape {_shape(outputs)}: every output is held "
            "against every target; targets[:, None] are a column, too",
        )


def _check_has_gradient(loss: Loss, outputs: Tree, targets: Tree) -> None:
    """Refuse a loss through which no gradient comes, such as one of `.detach()` or `.item()`."""

    def with_gradient(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_(tensor.is_floating_point())

    try:
        value = loss(mapped(with_gradient, outputs), targets)
    except MISFITS:  # it is no function of outputs alone
        return
    if not value.requires_grad:
        remedy = "has no gradient: is there a .detach(), or is it a constant?"
        raise InputError("loss", name_of(loss), remedy)


def _wants_labels(loss: Loss, targets: Tree) -> bool:
    """Return whether a loss object takes class numbers only: what it ignores may be anything."""
    if not isinstance(loss, nn.CrossEntropyLoss) or not isinstance(targets, Tensor):
        return False
    if targets.is_floating_point():
        return False
    return not bool((targets == loss.ignore_index).any())


def _check_classes(outputs: Tree, data: ClientData) -> None:
    if not isinstance(outputs, Tensor) or outputs.ndim < 2:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(
            "model",
            f"outputs {shape}",
            "cross-entropy needs one output per class: (batch, classes); for other outputs pass "
            "your own loss=",
        )
    targets, shape = data.targets, tuple(outputs.shape)
    if not isinstance(targets, Tensor):
        raise InputError("targets", type(targets).__name__, "pass your own loss= for them")
    if targets.shape[1:] == shape[1:] and _is_one_hot(targets):
        raise InputError(
            "targets",
            tuple(targets.shape),
            "look one-hot: cross-entropy takes class numbers, targets.argmax(1)",
        )
    if targets.is_floating_point() and shape[1] == 1:
        raise InputError(
            "targets",
            str(targets.dtype),
            "real numbers and a model with one output: a regression needs loss=F.mse_loss; without "
            "loss= it is cross-entropy, which takes class numbers",
        )
    if targets.is_floating_point():
        raise InputError(
            "targets",
            str(targets.dtype),
            "cross-entropy needs class numbers; for other targets pass your own loss=",
        )
    if targets.ndim == len(shape) and targets.shape[1] == 1:
        raise InputError(
            "targets", tuple(targets.shape), "a column of class numbers: targets.squeeze(1)"
        )
    if len(shape) == 3 and targets.shape[1:] == shape[1:2] and shape[1] != shape[2]:
        raise InputError(
            "model",
            f"outputs {shape}",
            f"cross-entropy takes classes along the second dimension, here {shape[1]} of them, and "
            "targets have one there for each position: return outputs.transpose(1, 2)",
        )
    data.check_labels(shape[1])


def _is_one_hot(targets: Tensor) -> bool:
    if targets.ndim < 2 or targets.shape[1] < 2:
        return False
    return bool(((targets == 0) | (targets == 1)).all() and (targets.sum(dim=1) == 1).all())


def _shape(tree: Tree) -> Any:
    """The shape of a tensor, or the shapes of a structure's."""
    if isinstance(tree, Tensor):
        return tuple(tree.shape)
    return mapped(lambda tensor: tuple(tensor.shape), tree)
