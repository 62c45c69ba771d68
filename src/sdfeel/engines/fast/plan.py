"""From a chain of operations to layers with shapes: what the generated C file is written from.

ReLU and max-pooling are folded into the convolution or linear layer before them; ReLU before
max-pooling is moved behind it, where it is cheaper and gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from . import operations as ops
from .errors import Unsupported
from .trace import trace


@dataclass(frozen=True)
class Shape:
    """The shape of a sample's activations; `pad` is the frame that the next convolution wants."""

    height: int
    width: int
    channels: int
    pad: ops.Pair = (0, 0)

    @property
    def elements(self) -> int:
        return self.height * self.width * self.channels

    @property
    def framed(self) -> int:
        return (self.height + 2 * self.pad[0]) * (self.width + 2 * self.pad[1]) * self.channels


@dataclass(frozen=True)
class Layer:
    """An operation with what is folded into it, and where its parameters lie in the vector."""

    op: ops.Op
    inner: ops.Pair = (0, 0)  # a convolution's own height and width, before pooling
    pool: ops.MaxPool | None = None
    relu: bool = False
    weight: int = -1
    bias: int = -1
    pixels: int = 1  # a linear layer's input was an image of so many pixels ...
    channels: int = 0  # ... and channels

    @property
    def parameters(self) -> list[tuple[int, int]]:
        """Return where each parameter lies in the vector, and how many elements it has."""
        if not isinstance(self.op, ops.Conv | ops.Linear):
            return []
        module = self.op.module
        weights = [(self.weight, module.weight.numel())]
        return weights if module.bias is None else [*weights, (self.bias, module.bias.numel())]


@dataclass(frozen=True)
class Plan:
    layers: tuple[Layer, ...]
    shapes: tuple[Shape, ...]  # before the first layer, and after each
    flat_input: bool
    sample: int  # elements of an input
    parameters: int
    squeezed: bool = False  # outputs are a number for each sample

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of a sample's outputs."""
        return () if self.squeezed else (self.shapes[-1].elements,)

    def multiplications(self, lanes: int) -> int:
        """Count multiplications of a sample, forward and backward, with those in empty lanes."""

        def filled(elements: int) -> int:
            return -(-elements // lanes) * lanes

        def shared(channels: int) -> int:
            """Return how the forward convolution packs its remainder: a whole, half or quarter."""
            left = channels % lanes
            parts = 0 if left == 0 else 4 if left > lanes // 2 else 2 if left > lanes // 4 else 1
            return channels - left + parts * lanes // 4

        total = 0
        for layer, before, after in zip(self.layers, self.shapes, self.shapes[1:], strict=False):
            if isinstance(layer.op, ops.Conv):
                rows, columns = layer.op.kernel
                patch = columns * before.channels
                total += layer.inner[0] * layer.inner[1] * rows * patch * shared(after.channels)
                total += after.elements * rows * filled(patch)
            elif isinstance(layer.op, ops.Linear):
                total += 2 * after.elements * filled(before.elements)
        return total


def _folded(chain: Sequence[ops.Op]) -> list[Layer]:
    relu = ops.Activation("RELU")
    layers: list[Layer] = []
    for op in chain:
        last = layers[-1] if layers else None
        if last is not None and isinstance(last.op, ops.Conv | ops.Linear):
            if op == relu:
                layers[-1] = replace(last, relu=True)
                continue
            if isinstance(op, ops.MaxPool) and isinstance(last.op, ops.Conv) and not last.pool:
                layers[-1] = replace(last, pool=op)
                continue
        layers.append(Layer(op))
    return layers


def _slide(height: int, width: int, op: ops.Window) -> ops.Pair:
    """How often a window fits into an image, down and across."""
    counts = []
    for size, kernel, step, pad in zip((height, width), op.kernel, op.step, op.pad, strict=True):
        counts.append((size + 2 * pad - kernel) // step + 1)
        if counts[-1] < 1:
            misfit = f"a kernel of {kernel} does not fit into {size} + 2 * {pad}"
            raise Unsupported(f"{type(op).__name__}: {misfit}")
    return counts[0], counts[1]


def _adapted(op: ops.AdaptivePool, shape: Shape) -> ops.AveragePool:
    """An adaptive pool whose windows are all equal is an ordinary one."""
    rows, columns = op.outputs[0] or shape.height, op.outputs[1] or shape.width
    if shape.height % rows or shape.width % columns:
        raise Unsupported(f"adaptive pooling of {shape.height}x{shape.width} to {rows}x{columns}")
    kernel = (shape.height // rows, shape.width // columns)
    return ops.AveragePool(kernel, kernel, (0, 0))


@dataclass
class _Walk:
    """The chain's shapes, one layer after the other."""

    places: dict[int, int]  # where each parameter begins in the vector
    flat: bool
    shapes: list[Shape]
    layers: list[Layer]

    def step(self, layer: Layer) -> None:
        shape, op = self.shapes[-1], layer.op
        if isinstance(op, ops.Squeeze):
            raise Unsupported("squeeze before the network's last layer")
        if isinstance(op, ops.Flatten):
            if op.features not in (None, shape.elements):
                raise Unsupported(f"view to {op.features} features, but there are {shape.elements}")
            self.flat = True
            return
        if isinstance(op, ops.Window | ops.AdaptivePool) and self.flat:
            raise Unsupported(f"{type(op).__name__} after flatten or on vectors")
        if isinstance(op, ops.AdaptivePool):
            op = _adapted(op, shape)
            layer = replace(layer, op=op)
        if isinstance(op, ops.Conv):
            layer, shape = self._conv(layer, op, shape)
        elif isinstance(op, ops.Linear):
            layer, shape = self._linear(layer, op, shape)
        elif isinstance(op, ops.Window):
            shape = Shape(*_slide(shape.height, shape.width, op), shape.channels)
        self.layers.append(layer)
        self.shapes.append(replace(shape, pad=(0, 0)))

    def _conv(self, layer: Layer, op: ops.Conv, shape: Shape) -> tuple[Layer, Shape]:
        if op.module.in_channels != shape.channels:
            raise Unsupported(f"{op.module}: gets {shape.channels} channels")
        self.shapes[-1] = replace(shape, pad=op.pad)
        inner = after = _slide(shape.height, shape.width, op)
        if layer.pool:
            after = _slide(*inner, layer.pool)
        layer = replace(self._placed(layer, op.module), inner=inner)
        return layer, Shape(*after, op.module.out_channels)

    def _linear(self, layer: Layer, op: ops.Linear, shape: Shape) -> tuple[Layer, Shape]:
        if not self.flat:
            raise Unsupported(f"{op.module}: its input is an image; flatten it first")
        if op.module.in_features != shape.elements:
            raise Unsupported(f"{op.module}: gets {shape.elements} features")
        layer = replace(
            self._placed(layer, op.module),
            pixels=shape.height * shape.width,
            channels=shape.channels,
        )
        return layer, Shape(1, 1, op.module.out_features)

    def _placed(self, layer: Layer, module: nn.Conv2d | nn.Linear) -> Layer:
        for name, value in (("weight", module.weight), ("bias", module.bias)):
            if value is None:
                continue
            if id(value) not in self.places:
                raise Unsupported(f"{module}: its {name} is not a parameter of its own")
            place = self.places.pop(id(value))
            layer = replace(layer, weight=place) if name == "weight" else replace(layer, bias=place)
        return layer


def make_plan(module: nn.Module, sample_shape: tuple[int, ...]) -> Plan:
    """Trace `module` and work out every shape for inputs of `sample_shape`."""
    chain = trace(module)
    places: dict[int, int] = {}
    total = 0
    for parameter in module.parameters():
        places[id(parameter)] = total
        total += parameter.numel()
    if not any(isinstance(op, ops.Conv | ops.Linear) for op in chain):
        raise Unsupported("the network has no layer with weights")
    elements = math.prod(sample_shape)
    flat = len(sample_shape) == 1 or isinstance(chain[0], ops.Flatten)
    if not flat and len(sample_shape) != 3:
        raise Unsupported(f"samples of shape {sample_shape} are neither vectors nor images")
    shape = (
        Shape(1, 1, elements) if flat else Shape(sample_shape[1], sample_shape[2], sample_shape[0])
    )
    squeezed = chain[-1] == ops.Squeeze()
    if squeezed:
        chain = chain[:-1]
    walk = _Walk(places, flat, [shape], [])
    for layer in _folded(chain):
        walk.step(layer)
    last = walk.shapes[-1]
    if not walk.flat or (last.height * last.width > 1 and last.channels > 1):
        raise Unsupported("the network must end in a vector (batch, outputs)")
    if squeezed and last.elements != 1:
        raise Unsupported(f"squeeze of {last.elements} outputs")
    return Plan(tuple(walk.layers), tuple(walk.shapes), flat, elements, total, squeezed)
