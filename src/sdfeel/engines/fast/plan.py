"""From a chain of operations to layers with shapes: what the generated C file is written from.

ReLU and max-pooling are folded into the convolution or linear layer before them; ReLU before
max-pooling is moved behind it, where it is cheaper and gives the same numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from . import operations as ops
from .errors import Unsupported
from .trace import Step, trace


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
    """An operation with what is folded into it, and where its parameters lie in the vector.

    reads  the values that it takes: 0 is the input, n + 1 what layer n gives
    """

    op: ops.Op
    reads: tuple[int, ...] = ()
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
        if not isinstance(self.op, ops.Weighted):
            return []
        module = self.op.module
        both = ((self.weight, module.weight), (self.bias, module.bias))
        return [(place, value.numel()) for place, value in both if value is not None]


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

    @property
    def is_plain(self) -> bool:
        """Return whether it is a chain of convolutions, pools and linear layers only."""
        others = (ops.Norm, ops.Depthwise, ops.Add)
        return not any(isinstance(layer.op, others) for layer in self.layers)

    @property
    def drops(self) -> bool:
        """Return whether something is drawn in training."""
        return any(isinstance(layer.op, ops.Dropout) for layer in self.layers)

    @property
    def products(self) -> int:
        """Return the multiplications of a sample's way through convolutions and linear layers."""
        total = 0
        for layer in self.layers:
            if isinstance(layer.op, ops.Conv | ops.Depthwise):
                total += math.prod(layer.inner) * layer.op.module.weight.numel()
            elif isinstance(layer.op, ops.Linear):
                total += layer.op.module.weight.numel()
        return total

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


RELU = ops.Activation("RELU")
COPY = ops.Activation("COPY")


def _folded(steps: Sequence[Step]) -> list[tuple[Layer, int]]:
    """Return layers that read values of steps, and the number of the value that each gives."""
    readers = Counter(value for step in steps for value in step.reads)
    layers: list[tuple[Layer, int]] = []
    for number, (op, reads) in enumerate((step.op, step.reads) for step in steps):
        last, value = layers[-1] if layers else (None, -1)
        if last is not None and reads == (value,) and readers[value] == 1:
            if op == RELU and isinstance(last.op, ops.Weighted | ops.Add):
                layers[-1] = replace(last, relu=True), number + 1
                continue
            if isinstance(op, ops.MaxPool) and isinstance(last.op, ops.Conv) and not last.pool:
                layers[-1] = replace(last, pool=op), number + 1
                continue
        layers.append((Layer(op, reads), number + 1))
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
    """The shapes of all values, one layer after the other.

    readers   how many steps read each value of the steps
    value_of  values of the steps as values here; flat: whether they are vectors
    """

    places: dict[int, int]  # where each parameter begins in the vector
    readers: Counter[int]
    value_of: dict[int, int]
    flat: dict[int, bool]
    shapes: list[Shape]
    layers: list[Layer]

    def step(self, layer: Layer, gives: int) -> None:
        """Take a layer that reads values of the steps, and gives one."""
        op, flat, reads = layer.op, self.flat[layer.reads[0]], layer.reads
        value = self.value_of[reads[0]]
        shape = self.shapes[value]
        self.flat[gives] = flat
        if isinstance(op, ops.Squeeze):
            raise Unsupported("squeeze before the network's last layer")
        if isinstance(op, ops.Flatten):
            if op.features not in (None, shape.elements):
                raise Unsupported(f"view to {op.features} features, but there are {shape.elements}")
            self.flat[gives], self.value_of[gives] = True, value
            # Who reads the vector reads the image as well.
            self.readers[gives] += self.readers[reads[0]] - 1
            return
        if isinstance(op, ops.Window | ops.AdaptivePool) and flat:
            raise Unsupported(f"{type(op).__name__} after flatten or on vectors")
        if isinstance(op, ops.AdaptivePool):
            op = _adapted(op, shape)
            layer = replace(layer, op=op)
        if isinstance(op, ops.Conv | ops.Depthwise) and op.pad != (0, 0):
            value = self._framed(value, self.readers[reads[0]], op.pad)
        layer = replace(layer, reads=tuple(self.value_of[each] for each in reads))
        if isinstance(op, ops.Conv | ops.Depthwise):
            layer, shape = self._conv(replace(layer, reads=(value,)), op, shape)
        elif isinstance(op, ops.Linear):
            layer, shape = self._linear(layer, op, shape, flat)
        elif isinstance(op, ops.Norm):
            layer = self._norm(layer, op, shape, flat)
        elif isinstance(op, ops.Add | ops.Dropout):
            self._check(layer, [self.flat[each] for each in reads])
        elif isinstance(op, ops.Window):
            shape = Shape(*_slide(shape.height, shape.width, op), shape.channels)
        self._append(layer, shape)
        self.value_of[gives] = len(self.layers)

    def _append(self, layer: Layer, shape: Shape) -> None:
        self.layers.append(layer)
        self.shapes.append(replace(shape, pad=(0, 0)))

    def _framed(self, value: int, readers: int, pad: ops.Pair) -> int:
        """Return the value with a frame of zeros: a copy of its own where others read it, too."""
        if readers > 1:
            self._append(Layer(COPY, (value,)), self.shapes[value])
            value = len(self.layers)
        self.shapes[value] = replace(self.shapes[value], pad=pad)
        return value

    def _check(self, layer: Layer, flat: list[bool]) -> None:
        if isinstance(layer.op, ops.Dropout) and layer.op.of_channels and flat[0]:
            raise Unsupported("dropout2d of vectors is not supported")
        shapes = {replace(self.shapes[value], pad=(0, 0)) for value in layer.reads}
        if len(shapes) > 1 or len(set(flat)) > 1:
            raise Unsupported("activations of different shapes are added")

    def _norm(self, layer: Layer, op: ops.Norm, shape: Shape, flat: bool) -> Layer:
        pixels = shape.height * shape.width
        if op.inner:
            image = (shape.channels, shape.height, shape.width)
            if op.inner != ((shape.elements,) if flat else image):
                raise Unsupported(f"{op.module}: normalises {op.inner} of {image}")
        elif op.channels != shape.channels or (flat and pixels > 1):
            raise Unsupported(f"{op.module}: gets {shape.channels} channels")
        if pixels * shape.channels == op.groups:
            raise Unsupported(f"{op.module}: normalises single numbers")
        return replace(self._placed(layer, op.module), pixels=pixels, channels=shape.channels)

    def _conv(
        self, layer: Layer, op: ops.Conv | ops.Depthwise, shape: Shape
    ) -> tuple[Layer, Shape]:
        if op.module.in_channels != shape.channels:
            raise Unsupported(f"{op.module}: gets {shape.channels} channels")
        inner = after = _slide(shape.height, shape.width, op)
        if layer.pool:
            after = _slide(*inner, layer.pool)
        layer = replace(self._placed(layer, op.module), inner=inner)
        return layer, Shape(*after, op.module.out_channels)

    def _linear(
        self, layer: Layer, op: ops.Linear, shape: Shape, flat: bool
    ) -> tuple[Layer, Shape]:
        if not flat:
            raise Unsupported(f"{op.module}: its input is an image; flatten it first")
        if op.module.in_features != shape.elements:
            raise Unsupported(f"{op.module}: gets {shape.elements} features")
        layer = replace(
            self._placed(layer, op.module),
            pixels=shape.height * shape.width,
            channels=shape.channels,
        )
        return layer, Shape(1, 1, op.module.out_features)

    def _placed(self, layer: Layer, module: nn.Module) -> Layer:
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
    steps = trace(module)
    places: dict[int, int] = {}
    total = 0
    for parameter in module.parameters():
        places[id(parameter)] = total
        total += parameter.numel()
    if not any(isinstance(step.op, ops.Weighted) for step in steps):
        raise Unsupported("the network has no layer with weights")
    elements = math.prod(sample_shape)
    first = [step.op for step in steps if 0 in step.reads]
    flat = len(sample_shape) == 1 or all(isinstance(op, ops.Flatten) for op in first)
    if not flat and len(sample_shape) != 3:
        raise Unsupported(f"samples of shape {sample_shape} are neither vectors nor images")
    shape = (
        Shape(1, 1, elements) if flat else Shape(sample_shape[1], sample_shape[2], sample_shape[0])
    )
    squeezed = steps[-1].op == ops.Squeeze()
    if squeezed:
        steps = steps[:-1]
    readers = Counter(value for step in steps for value in step.reads)
    walk = _Walk(places, readers, {0: 0}, {0: flat}, [shape], [])
    for layer, gives in _folded(steps):
        walk.step(layer, gives)
    last = walk.shapes[-1]
    if not walk.flat[len(steps)] or (last.height * last.width > 1 and last.channels > 1):
        raise Unsupported("the network must end in a vector (batch, outputs)")
    if squeezed and last.elements != 1:
        raise Unsupported(f"squeeze of {last.elements} outputs")
    if walk.value_of[len(steps)] != len(walk.layers):
        raise Unsupported("the network returns something else than its last layer")
    return Plan(tuple(walk.layers), tuple(walk.shapes), flat, elements, total, squeezed)
