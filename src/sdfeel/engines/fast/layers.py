"""What the C file of a network says of each layer: its buffers, and one call in each direction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import operations as ops
from .plan import Layer, Plan, Shape

WIDEST = 16  # elements of the longest vector a machine may have: buffers are rounded up to it


def rounded_up(elements: int) -> int:
    return -(-elements // WIDEST) * WIDEST


def shape_text(shape: Shape) -> str:
    numbers = (shape.height, shape.width, shape.channels, *shape.pad, size_text(shape))
    return f"((Shape){{{', '.join(map(str, numbers))}}})"


def size_text(shape: Shape) -> str:
    return f"(({shape.framed} + VL - 1) / VL * VL)"


def _window(op: ops.Window | None) -> str:
    numbers = (0,) * 6 if op is None else (*op.kernel, *op.step, *op.pad)
    return f"((Window){{{', '.join(map(str, numbers))}}})"


@dataclass
class SourceFile:
    """The parts of the file, filled layer by layer."""

    fields: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    unpack: list[str] = field(default_factory=list)
    pack: list[str] = field(default_factory=list)
    add: list[str] = field(default_factory=list)
    refresh: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    settle: list[str] = field(default_factory=list)
    draw: list[str] = field(default_factory=list)
    state: int = 0  # elements of a model in our own order
    owes: bool = False  # whether the first layer's update is made by the next step
    one_list: int = 1
    many_lists: int = 1
    sample_lists: int = 16  # TILE_ROWS
    many_counts: int = 1
    scratch: int = 1
    bytes_per_sample: int = 0

    def buffer(self, kind: str, name: str, elements: int | str) -> None:
        self.fields.append(f"{kind} {name}[{elements}] __attribute__((aligned(64)));")

    def region(self, kind: str, elements: int, arguments: str, offset: int) -> int:
        """Room for a parameter in our own order, and the ways there and back."""
        at = self.state
        self.state += rounded_up(elements)
        flat, state = f"flat + {offset}", f"state + {at}"
        self.unpack.append(f"unpack_{kind}({arguments}, {flat}, {state});")
        self.pack.append(f"pack_{kind}({arguments}, {state}, {flat});")
        self.add.append(f"add_{kind}({arguments}, {state}, {flat}, weight, room);")
        return at

    def vector(self, elements: int, offset: int) -> int:
        """Room for a parameter that keeps its order."""
        return self.region("columns", elements, f"1, 1, {elements}", offset)


def _conv(
    file: SourceFile, n: int, layer: Layer, before: Shape, after: Shape, dx: Sequence[str]
) -> None:
    op = layer.op
    assert isinstance(op, ops.Conv)  # noqa: S101
    outs, ins, window = after.channels, before.channels, _window(op)
    height, width = layer.inner
    patch = op.kernel[0] * rounded_up(op.kernel[1] * ins)
    arguments = f"{outs}, {ins}, {window}"
    biased = int(layer.bias >= 0)
    weight = file.region("weights", outs * patch, arguments, layer.weight)
    bias = file.vector(outs, layer.bias) if biased else weight
    turned = (op.kernel[0] * op.kernel[1] * ins + 1) * rounded_up(outs)
    file.buffer("real", f"turned{n}", turned)
    file.refresh.append(
        f"turn_weights({arguments}, work->model + {weight}, "
        f"{f'work->model + {bias}' if biased else '0'}, work->turned{n});"
    )
    pixels, windows = height * width, after.height * after.width
    file.buffer("int32_t", f"place{n}", pixels)
    row = (before.width + 2 * before.pad[1]) * ins
    file.start.append(
        f"for (int p = 0; p < {pixels}; p++) work->place{n}[p] = p / {width} * {op.step[0] * row}"
        f" + p % {width} * {op.step[1] * ins};"
    )
    pool, repeats, index = layer.pool, 1, "0"
    if pool:
        repeats = -(-pool.kernel[0] // pool.step[0]) * -(-pool.kernel[1] // pool.step[1])
        index = f"work->index{n}"
        file.buffer("inum", f"index{n}", f"BLOCK * {windows * rounded_up(outs)}")
        file.bytes_per_sample += 4 * windows * rounded_up(outs)
    file.scratch = max(file.scratch, pixels * rounded_up(outs))
    file.one_list = max(file.one_list, windows)
    x, y, dy = f"work->x{layer.reads[0]}", f"work->x{n + 1}", f"work->d{n + 1}"
    file.functions.append(
        f"APART void convolve{n}(const real *x, const real *w, const real *turned, int from, "
        f"int to, real *y) {{ convolve_rows({shape_text(before)}, {window}, {outs}, {width}, "
        "x, w, turned, from, to, y); }"
    )
    file.forward.append(
        f"convolution_forward({shape_text(before)}, {window}, {height}, {width}, {_window(pool)}, "
        f"{shape_text(after)}, {int(layer.relu)}, convolve{n}, n, {x}, work->model + {weight}, "
        f"work->turned{n}, work->scratch, {y}, {index});"
    )
    if layer.relu:
        file.backward.append(f"mask_by_output(n * {size_text(after)}, {y}, {dy});")
    if dx[0]:
        file.many_lists = max(file.many_lists, pixels * outs * repeats)
        file.many_counts = max(file.many_counts, pixels)
        file.backward.append(
            f"convolution_inputs({shape_text(before)}, {window}, {height}, {width}, "
            f"{int(bool(pool))}, {repeats}, {shape_text(after)}, n, {dx[0]}, {dy}, {index}, "
            f"work->place{n}, work->model + {weight}, lists);"
        )
    place = f"{file.state - weight}, shifted(everything(work), {weight}), s);"
    file.backward += [
        f"if (!own) before_gradient({place}",
        f"convolution_weights({shape_text(before)}, {window}, {int(bool(pool))}, "
        f"{shape_text(after)}, {biased}, n, {x}, {dy}, {index}, work->place{n}, to + {weight}, "
        f"to + {bias}, s.scale, lists);",
        f"if (!own) after_gradient({place}",
    ]


def _linear(
    file: SourceFile, n: int, layer: Layer, before: Shape, after: Shape, dx: Sequence[str]
) -> None:
    ins, outs = before.elements, after.elements
    biased, relu = int(layer.bias >= 0), int(layer.relu)
    arguments = f"{outs}, {layer.pixels}, {layer.channels}"
    weight = file.region("columns", outs * rounded_up(ins), arguments, layer.weight)
    bias = file.vector(outs, layer.bias) if biased else weight
    sizes = f"{size_text(before)}, {size_text(after)}"
    first = n == 0 and file.owes
    x, debt = (
        (f"work->x{layer.reads[0]}", "((Debt){0})")
        if not first
        else ("current(work)", "work->debt")
    )

    def walk(how: str, forward: int, to: str, debt: str) -> str:
        return (
            f"linear_walk({how}, {ins}, {outs}, {biased}, {relu}, {sizes}, {forward}, BLOCK, n, "
            f"{x}, shifted({to}, {weight}), shifted({to}, {bias}), work->x{n + 1}, {debt}, lists);"
        )

    file.forward.append(
        walk("BY_RULE", 1, "everything(work)", debt) + (" work->debt.n = 0;" if first else "")
    )
    if first:
        paid = walk("BY_RULE", 0, "everything(work)", debt)
        file.settle.append(f"const int n = 0; {paid} work->debt.n = 0;")
    dy = f"work->d{n + 1}"
    if relu:
        file.backward.append(f"mask_by_output(n * {size_text(after)}, work->x{n + 1}, {dy});")
    if dx[0]:
        file.sample_lists = max(file.sample_lists, outs)
        file.backward.append(
            f"linear_inputs({ins}, {outs}, {sizes}, n, {dy}, work->model + {weight}, {dx[0]}, "
            "lists);"
        )
    owed = f"(Debt){{n, {x}, {dy}, s}}"
    later = f"if (later) {{ work->debt = {owed}; work->flip ^= 1; }} else " if first else ""
    by_rule = walk("BY_RULE", 0, "everything(work)", owed)
    add_only = walk("ADD_ONLY", 0, "((Place){to, 0, 0})", owed)
    file.backward.append(f"{later}if (RULED && !own) {by_rule} else {add_only}")


def _other(
    file: SourceFile, n: int, layer: Layer, before: Shape, after: Shape, dx: Sequence[str]
) -> None:
    op, shapes = layer.op, f"{shape_text(before)}, {shape_text(after)}"
    x, y, dy = f"work->x{layer.reads[0]}", f"work->x{n + 1}", f"work->d{n + 1}"
    if isinstance(op, ops.Activation):
        slope = f"(real){op.slope!r}"
        file.forward.append(f"activation_forward({op.kind}, {slope}, {shapes}, n, {x}, {y});")
        back = f"activation_backward({op.kind}, {slope}, {shapes}, n, {x}, {dx[0]}, {y}, {dy});"
    elif isinstance(op, ops.MaxPool):
        indices = after.height * after.width * rounded_up(after.channels)
        file.buffer("inum", f"index{n}", f"BLOCK * {indices}")
        file.bytes_per_sample += 4 * indices
        file.forward.append(
            f"max_pool_forward({shape_text(before)}, {_window(op)}, {shape_text(after)}, n, {x}, "
            f"{y}, work->index{n});"
        )
        back = f"max_pool_backward({shapes}, n, {dx[0]}, {dy}, work->index{n});"
    else:
        assert isinstance(op, ops.AveragePool)  # noqa: S101
        call = f"average_pool({shape_text(before)}, {_window(op)}, {shape_text(after)}, n"
        file.forward.append(f"{call}, {x}, {y}, 0);")
        back = f"{call}, {dx[0]}, {dy}, 1);"
    if dx[0]:
        file.backward.append(back)


def _dropout(
    file: SourceFile, n: int, layer: Layer, before: Shape, after: Shape, dx: Sequence[str]
) -> None:
    op = layer.op
    assert isinstance(op, ops.Dropout)  # noqa: S101
    size, part = before.elements, 1 - op.part
    file.buffer("unsigned char", f"kept{n}", f"MOST_DRAWN * {size}")
    numbers = f"{int(op.of_channels)}, {part!r}, n, &twister, work->kept{n}"
    file.draw.append(f"draw_kept({shape_text(before)}, {numbers});")
    passing = f"(work->drops ? work->kept{n} + work->at * {size} : 0)"
    scale, shapes = f"(real)1 / (real){part!r}", [shape_text(before), shape_text(after)]
    x, y, dy = f"work->x{layer.reads[0]}", f"work->x{n + 1}", f"work->d{n + 1}"
    file.forward.append(f"dropout({', '.join(shapes)}, {scale}, n, {x}, {y}, {passing});")
    if dx[0]:
        file.backward.append(
            f"dropout({', '.join(shapes[::-1])}, {scale}, n, {dy}, {dx[0]}, {passing});"
        )


def _masked(file: SourceFile, n: int, layer: Layer, after: Shape) -> None:
    """On the way back nothing passes where ReLU gave 0."""
    if layer.relu:
        file.backward.append(
            f"mask_by_output(n * {size_text(after)}, work->x{n + 1}, work->d{n + 1});"
        )


def _add(
    file: SourceFile, n: int, layer: Layer, before: Shape, after: Shape, dx: Sequence[str]
) -> None:
    shapes = f"{shape_text(before)}, {shape_text(after)}"
    first, second = (f"work->x{value}" for value in layer.reads)
    file.forward.append(
        f"add_forward({shapes}, {int(layer.relu)}, n, {first}, {second}, work->x{n + 1});"
    )
    _masked(file, n, layer, after)
    for to in dx:
        if to:
            file.backward.append(f"add_backward({shapes}, n, {to}, work->d{n + 1});")


def _apart(file: SourceFile, n: int, places: Sequence[tuple[int, int]]) -> None:
    """Add the gradients of parameters that a kernel left in `grads`, by the rule: place, size."""
    at = 0
    for place, size in places:
        where = f"{rounded_up(size)}, shifted(everything(work), {place}), s);"
        file.backward += [
            f"if (!own) before_gradient({where}",
            f"add_scaled({size}, to + {place}, work->grads{n} + {at}, s.scale);",
            f"if (!own) after_gradient({where}",
        ]
        at += size
    file.buffer("real", f"grads{n}", max(at, 1) + WIDEST)


def _norm(
    file: SourceFile, n: int, layer: Layer, before: Shape, after: Shape, dx: Sequence[str]
) -> None:
    op = layer.op
    assert isinstance(op, ops.Norm)  # noqa: S101
    size = before.elements if op.inner else before.channels
    arguments = f"1, {layer.pixels if op.inner else 1}, {before.channels}"
    places = [
        (file.region("columns", size, arguments, offset), size)
        for offset in (layer.weight, layer.bias)
        if offset >= 0
    ]
    file.buffer("real", f"stats{n}", f"BLOCK * {2 * op.groups}")
    weight, bias = (f"work->model + {places[k][0]}" if k < len(places) else "0" for k in (0, 1))
    numbers = f"{op.groups}, {int(bool(op.inner))}"
    shapes = f"{shape_text(before)}, {shape_text(after)}"
    x, y = f"work->x{layer.reads[0]}", f"work->x{n + 1}"
    file.forward.append(
        f"norm_forward({shapes}, {numbers}, (real){op.module.eps!r}, {int(layer.relu)}, n, {x}, "
        f"{weight}, {bias}, {y}, work->stats{n});"
    )
    _masked(file, n, layer, after)
    grads = f"work->grads{n}" if places else "0"
    file.backward.append(
        f"norm_backward({shapes}, {numbers}, {len(places)}, n, {x}, {weight}, work->d{n + 1}, "
        f"work->stats{n}, {dx[0] or '0'}, {grads});"
    )
    _apart(file, n, places)


def _depthwise(
    file: SourceFile, n: int, layer: Layer, before: Shape, after: Shape, dx: Sequence[str]
) -> None:
    op = layer.op
    assert isinstance(op, ops.Depthwise)  # noqa: S101
    taps = op.kernel[0] * op.kernel[1]
    size = taps * before.channels
    weight = file.region("columns", size, f"1, {taps}, {before.channels}", layer.weight)
    places = [(weight, size)]
    if layer.bias >= 0:
        places.append((file.vector(before.channels, layer.bias), before.channels))
    bias = f"work->model + {places[1][0]}" if len(places) > 1 else "0"
    shapes = f"{shape_text(before)}, {_window(op)}, {shape_text(after)}"
    x = f"work->x{layer.reads[0]}"
    file.forward.append(
        f"depthwise_forward({shapes}, {int(layer.relu)}, n, {x}, work->model + {weight}, {bias}, "
        f"work->x{n + 1});"
    )
    _masked(file, n, layer, after)
    file.backward.append(
        f"depthwise_backward({shapes}, {len(places) - 1}, n, {x}, work->model + {weight}, "
        f"work->d{n + 1}, {dx[0] or '0'}, work->grads{n});"
    )
    _apart(file, n, places)


WRITERS = {
    ops.Conv: _conv,
    ops.Linear: _linear,
    ops.Norm: _norm,
    ops.Depthwise: _depthwise,
    ops.Add: _add,
    ops.Dropout: _dropout,
}


def _unused(plan: Plan) -> list[tuple[int, int]]:
    """Return where parameters lie that no layer uses, and how many: a rule may move them too."""
    known = sorted((at, count) for layer in plan.layers for at, count in layer.parameters)
    gaps, end = [], 0
    for at, count in [*known, (plan.parameters, 0)]:
        if at > end:
            gaps.append((end, at - end))
        end = at + count
    return gaps


def _wanted(plan: Plan) -> list[bool]:
    """Return of which values gradients are needed: there are weights before them."""
    wanted = [False]
    for layer in plan.layers:
        below = any(wanted[value] for value in layer.reads)
        wanted.append(below or bool(layer.parameters))
    return wanted


def write_layers(file: SourceFile, plan: Plan) -> None:
    """Everything about every layer of `plan`."""
    wanted = _wanted(plan)
    last_reader = {value: n for n, layer in enumerate(plan.layers) for value in layer.reads}
    # The last reader of a value is the first on the way back: others add to what it wrote.
    extra = 0
    readers = Counter(value for layer in plan.layers for value in layer.reads)
    first = plan.layers[0]
    file.owes = isinstance(first.op, ops.Linear) and readers[0] == 1
    calls: list[list[str]] = []
    for n, layer in enumerate(plan.layers):
        write = WRITERS.get(type(layer.op), _other)
        file.backward = []
        later: list[str] = []
        dx: list[str] = []
        seen: set[int] = set()
        for value in layer.reads:
            shape = plan.shapes[value]
            is_first = last_reader[value] == n and value not in seen
            seen.add(value)
            if not wanted[value]:
                dx.append("")
            elif is_first:
                dx.append(f"work->d{value}")
            else:
                room = f"work->extra + {len(later)} * BLOCK * {rounded_up(shape.framed)}"
                later.append(f"add_to(n * {size_text(shape)}, work->d{value}, {room});")
                extra = max(extra, len(later) * rounded_up(shape.framed))
                dx.append(room)
        write(file, n, layer, plan.shapes[layer.reads[0]], plan.shapes[n + 1], dx)
        file.backward += later
        calls.append(file.backward)
    if extra:
        file.buffer("real", "extra", f"BLOCK * {extra}")
    file.backward = [line for lines in reversed(calls) for line in lines]
    for offset, count in _unused(plan):
        at = file.vector(count, offset)
        place = f"{rounded_up(count)}, shifted(everything(work), {at}), s);"
        file.backward += [f"if (!own) before_gradient({place}", f"if (!own) after_gradient({place}"]
