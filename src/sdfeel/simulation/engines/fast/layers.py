"""What the C file of a network says of each layer: its buffers, and one call in each direction."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import operations as ops
from .plan import Layer, Plan, Shape

__all__ = ["WIDEST", "File", "rounded_up", "shape_text", "size_text", "write_layers"]

WIDEST = 16  # elements of the longest vector a machine may have: buffers are rounded up to it


def rounded_up(elements: int) -> int:
    return -(-elements // WIDEST) * WIDEST


def shape_text(shape: Shape) -> str:
    size = f"(({shape.framed} + VL - 1) / VL * VL)"
    return (
        f"((Shape){{{shape.height}, {shape.width}, {shape.channels}, "
        f"{shape.pad[0]}, {shape.pad[1]}, {size}}})"
    )


def size_text(shape: Shape) -> str:
    return f"(({shape.framed} + VL - 1) / VL * VL)"


def _window(op: ops.Conv | ops.MaxPool | ops.AveragePool | None) -> str:
    if op is None or op.kernel is None:
        return "((Window){0, 0, 0, 0, 0, 0})"
    numbers = (*op.kernel, *op.step, *op.pad)
    return f"((Window){{{', '.join(map(str, numbers))}}})"


@dataclass
class File:
    """The parts of the file, filled layer by layer."""

    fields: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    unpack: list[str] = field(default_factory=list)
    pack: list[str] = field(default_factory=list)
    refresh: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    settle: list[str] = field(default_factory=list)
    clear: list[str] = field(default_factory=list)
    apply: list[str] = field(default_factory=list)
    pack_gradient: list[str] = field(default_factory=list)
    one_list: int = 1
    many_lists: int = 1
    sample_lists: int = 16  # TILE_ROWS
    many_counts: int = 1
    scratch: int = 1
    bytes_per_sample: int = 0

    def buffer(self, kind: str, name: str, elements: int | str) -> None:
        self.fields.append(f"{kind} {name}[{elements}] __attribute__((aligned(64)));")

    def parameter(self, offset: int, count: int) -> None:
        """A parameter that is used where it lies in the model."""
        self.apply.append(f"add_scaled({count}, work->gradient + {offset}, model + {offset}, s);")

    def own(self, name: str, elements: int, arguments: str, kind: str, offset: int) -> None:
        """A weight kept in an order of our own while a client trains."""
        self.buffer("real", name, elements)
        self.buffer("real", f"d{name}", elements)
        self.unpack.append(f"unpack_{kind}({arguments}, model + {offset}, work->{name});")
        self.pack.append(f"pack_{kind}({arguments}, work->{name}, model + {offset});")
        self.clear.append(f"memset(work->d{name}, 0, sizeof work->d{name});")
        self.apply.append(f"add_scaled({elements}, work->d{name}, work->{name}, s);")
        self.pack_gradient.append(f"pack_{kind}({arguments}, work->d{name}, out + {offset});")


def _conv(file: File, n: int, layer: Layer, before: Shape, after: Shape, wants_dx: bool) -> None:
    op = layer.op
    assert isinstance(op, ops.Conv)  # noqa: S101
    outs, ins, window = after.channels, before.channels, _window(op)
    height, width = layer.inner
    patch = op.kernel[0] * rounded_up(op.kernel[1] * ins)
    arguments = f"{outs}, {ins}, {window}"
    file.own(f"w{n}", outs * patch, arguments, "weights", layer.weight)
    turned = (op.kernel[0] * op.kernel[1] * ins + 1) * rounded_up(outs)
    file.buffer("real", f"turned{n}", turned)
    biased = int(layer.bias >= 0)
    bias = f"model + {layer.bias}" if biased else "0"
    file.refresh.append(f"turn_weights({arguments}, work->w{n}, {bias}, work->turned{n});")
    if biased:
        file.parameter(layer.bias, outs)
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
    if wants_dx:
        file.many_lists = max(file.many_lists, pixels * outs * repeats)
        file.many_counts = max(file.many_counts, pixels)
    relu = int(layer.relu)
    file.forward.append(
        f"convolution_forward({shape_text(before)}, {window}, {height}, {width}, {_window(pool)}, "
        f"{shape_text(after)}, {relu}, n, work->x{n}, work->w{n}, work->turned{n}, work->scratch, "
        f"work->x{n + 1}, {index});"
    )
    file.backward.append(
        f"convolution_backward({shape_text(before)}, {window}, {height}, {width}, "
        f"{int(bool(pool))}, {repeats}, {shape_text(after)}, {relu}, {biased}, "
        f"{int(wants_dx)}, n, work->x{n}, {f'work->d{n}' if wants_dx else '0'}, "
        f"work->x{n + 1}, work->d{n + 1}, {index}, "
        f"work->place{n}, work->w{n}, own ? work->dw{n} : work->w{n}, "
        f"{f'to + {layer.bias}' if biased else '0'}, s, lists);"
    )


def _linear(file: File, n: int, layer: Layer, before: Shape, after: Shape, wants_dx: bool) -> None:
    ins, outs = before.elements, after.elements
    moved = layer.pixels > 1 and layer.channels > 1
    in_place = ins % WIDEST == 0 and not moved
    biased, relu = int(layer.bias >= 0), int(layer.relu)
    if in_place:
        file.parameter(layer.weight, ins * outs)
        weight, target = f"model + {layer.weight}", f"to + {layer.weight}"
    else:
        arguments = f"{outs}, {layer.pixels}, {layer.channels}"
        file.own(f"w{n}", outs * rounded_up(ins), arguments, "columns", layer.weight)
        weight, target = f"work->w{n}", f"(own ? work->dw{n} : work->w{n})"
    bias = f"model + {layer.bias}" if biased else "0"
    bias_target = f"to + {layer.bias}" if biased else "0"
    if biased:
        file.parameter(layer.bias, outs)
    sizes = f"{size_text(before)}, {size_text(after)}"
    first = n == 0
    x, debt = (f"work->x{n}", "((Debt){0})") if not first else ("current(work)", "work->debt")

    def walk(forward: int, source: str, to: str, to_bias: str, debt: str) -> str:
        return (
            f"linear_walk({ins}, {outs}, {biased}, {relu}, {sizes}, {forward}, BLOCK, n, "
            f"{source}, {to}, {to_bias}, work->x{n + 1}, {debt}, lists);"
        )

    file.forward.append(walk(1, x, weight, bias, debt))
    if first:
        file.forward.append("work->debt.n = 0;")
        file.settle.append(f"const int n = 0; {walk(0, x, weight, bias, debt)} work->debt.n = 0;")
    if relu:
        file.backward.append(
            f"mask_by_output(n * {size_text(after)}, work->x{n + 1}, work->d{n + 1});"
        )
    if wants_dx:
        file.sample_lists = max(file.sample_lists, outs)
        file.backward.append(
            f"linear_inputs({ins}, {outs}, {sizes}, n, work->d{n + 1}, {weight}, work->d{n}, "
            "lists);"
        )
    owed = f"(Debt){{n, {x}, work->d{n + 1}, s}}"
    update = walk(0, x, target, bias_target, owed)
    if first:
        update = f"if (later) {{ work->debt = {owed}; work->flip ^= 1; }} else {update}"
    file.backward.append(update)


def _other(file: File, n: int, layer: Layer, before: Shape, after: Shape, wants_dx: bool) -> None:
    op, shapes = layer.op, f"{shape_text(before)}, {shape_text(after)}"
    x, y, dx, dy = (f"work->{a}" for a in (f"x{n}", f"x{n + 1}", f"d{n}", f"d{n + 1}"))
    if isinstance(op, ops.Activation):
        slope = f"(real){op.slope!r}"
        file.forward.append(f"activation_forward({op.kind}, {slope}, {shapes}, n, {x}, {y});")
        back = f"activation_backward({op.kind}, {slope}, {shapes}, n, {x}, {dx}, {y}, {dy});"
    elif isinstance(op, ops.MaxPool):
        indices = after.height * after.width * rounded_up(after.channels)
        file.buffer("inum", f"index{n}", f"BLOCK * {indices}")
        file.bytes_per_sample += 4 * indices
        file.forward.append(
            f"max_pool_forward({shape_text(before)}, {_window(op)}, {shape_text(after)}, n, {x}, "
            f"{y}, work->index{n});"
        )
        back = f"max_pool_backward({shapes}, n, {dx}, {dy}, work->index{n});"
    else:
        assert isinstance(op, ops.AveragePool)  # noqa: S101
        call = f"average_pool({shape_text(before)}, {_window(op)}, {shape_text(after)}, n"
        file.forward.append(f"{call}, {x}, {y}, 0);")
        back = f"{call}, {dx}, {dy}, 1);"
    if wants_dx:
        file.backward.append(back)


def write_layers(file: File, plan: Plan) -> None:
    weighted = False
    calls: list[list[str]] = []
    for n, layer in enumerate(plan.layers):
        write = {ops.Conv: _conv, ops.Linear: _linear}.get(type(layer.op), _other)
        file.backward = []
        write(file, n, layer, plan.shapes[n], plan.shapes[n + 1], weighted)
        weighted = weighted or layer.weight >= 0
        calls.append(file.backward)
    file.backward = [line for lines in reversed(calls) for line in lines]
