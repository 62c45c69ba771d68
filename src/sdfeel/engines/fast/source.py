"""The C file of one network: its shapes as literals around the kernels beside this module.

Nothing here computes: it names buffers and writes one call for each layer and direction. The
compiler then sees every extent as a constant.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files

from .layers import WIDEST, SourceFile, rounded_up, shape_text, size_text, write_layers
from .losses import LossForm
from .plan import Plan
from .rule import Terms

_FUNCTIONS = {
    "EXP": "exp",
    "EXPM1": "expm1",
    "LOG1P": "log1p",
    "SQRT": "sqrt",
    "TANH_": "tanh",
    "ERF": "erf",
}
_HEADERS = (
    "vectors.h", "rule.h", "layers.h", "convolution.h", "linear.h", "elementwise.h",
    "normalise.h", "losses.h",
)  # fmt: skip
# Samples of the largest batch for which dropout is drawn: all of a batch is, before it is used.
MOST_DRAWN = 384


def _function(head: str, lines: list[str], kind: str = "static", gives: str = "void") -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"{kind} {gives} {head} {{\n{body}\n}}\n"


def _apart(name: str, parameters: str, arguments: str, before: list[str], calls: list[str]) -> str:
    """A function for each call, and one that calls them all.

    In one large function compilers run out of registers and shuffle values to and fro.
    """
    parts = [
        _function(f"{name}_{i}({parameters})", [*before, call], "APART")
        for i, call in enumerate(calls)
    ]
    whole = [f"{name}_{i}({arguments});" for i in range(len(calls))]
    return "\n".join([*parts, _function(f"{name}({parameters})", whole)])


def _wide(plan: Plan, double: bool) -> bool:
    """Return whether vectors of 64 bytes are filled as well as those of 32 bytes.

    With few channels they are not: the CNN of 21,840 parameters then takes 1.4 times as long.
    """
    lanes = 4 if double else 8
    return plan.multiplications(2 * lanes) <= 1.1 * plan.multiplications(lanes)


def _literals(name: str, values: tuple[float, ...]) -> tuple[str, str]:
    """Return an array of constants, and what to call it; nothing, and 0, where there are none."""
    if not values:
        return "", "0"
    listed = ", ".join(f"{value!r}" for value in values)
    return f"static const double {name}[{len(values)}] = {{{listed}}};", name


def _loss(loss: LossForm, outputs: int, size: str, last: int) -> str:
    """Return the function `loss` of a block, and `whole_of` a batch: what it is a mean over."""
    weights, named = _literals("loss_weights", loss.weights)
    scales, scaled = _literals("loss_scales", loss.scales)
    block = f"n, whole, work->x{last}, work->d{last}, wanted"
    sizes = f"{outputs}, {size}"
    ignored = f"{loss.ignore or 0}, {int(loss.ignore is not None)}"
    if loss.kind == "cross-entropy" and not (loss.is_weighted or loss.smoothing):
        scored = f"cross_entropy({sizes}, {block}, bad)"
    elif loss.kind == "cross-entropy":
        numbers = f"{loss.smoothing!r}, {ignored}, {named}"
        scored = f"weighted_cross_entropy({sizes}, {numbers}, {block}, bad)"
    elif loss.kind == "mse":
        scored = f"squared_error({sizes}, {block})"
    elif loss.kind == "bce":
        scored = f"binary_cross_entropy({sizes}, {named}, {scaled}, {block})"
    else:
        kind = loss.kind.upper().replace("-", "_")
        scored = f"absolute_error({kind}, (real){loss.beta!r}, {sizes}, {block})"
    weight = f"{named}[label]" if loss.weights else "1"
    known = f"label >= 0 && label < {outputs}"
    counted = f"{known} && label != {loss.ignore}" if loss.ignore is not None else known
    whole = (
        [
            "double sum = 0;",
            "for (int64_t i = 0; i < n; i++) {",
            "    const int64_t position = first + (chosen ? chosen[i] : i);",
            "    const int64_t label = targets[index ? index[position] : position];",
            f"    if ({counted}) sum += {weight};",
            "}",
            "return sum;",
        ]
        if loss.is_weighted
        else ["(void)targets, (void)index, (void)chosen, (void)first;", "return (double)n;"]
    )
    return "\n".join(
        [
            weights,
            scales,
            "static double loss(Work *work, int n, double whole, const target *const *wanted, "
            f"int *bad) {{\n    (void)bad;\n    return {scored};\n}}",
            _function(
                "whole_of(const target *targets, const int64_t *index, const int64_t *chosen, "
                "int64_t first, int64_t n)",
                whole,
                "static",
                "double",
            ),
        ]
    )


def generate(plan: Plan, loss: LossForm, dtype: str, terms: Terms, tables: int = 0) -> str:
    """The whole C file as text.

    tables  0 for inputs that are real numbers; for bytes how many tables say what they stand for
    """
    file = SourceFile()
    write_layers(file, plan)
    for n, shape in enumerate(plan.shapes):
        copies = 2 if n == 0 else 1  # two inputs: the debt of the last step reads its own
        file.buffer("real", f"x{n}", f"{copies} * BLOCK * {rounded_up(shape.framed)}")
        if n:
            file.buffer("real", f"d{n}", f"BLOCK * {rounded_up(shape.framed)}")
        file.bytes_per_sample += 4 * (2 if n else 1) * rounded_up(shape.framed)
    last = len(plan.layers)
    outputs = plan.shapes[-1].elements
    block = min(128, max(16, 2**20 // file.bytes_per_sample))
    double = dtype == "float64"
    suffix = "" if double else "f"
    head = [
        f"typedef {'double' if double else 'float'} real;",
        f"typedef {'long long' if double else 'int'} inum;",
        f"#define REAL_BYTES {8 if double else 4}",
        f"typedef {'unsigned char' if tables else 'real'} given;",
        f"#define TABLES {tables}",
        f"#define WIDE {int(_wide(plan, double))}",
        *(f"#define {term.upper()} {int(there)}" for term, there in asdict(terms).items()),
        *(f"#define {name} {function}{suffix}" for name, function in _FUNCTIONS.items()),
    ]
    kernels = files(__package__).joinpath("kernels")
    names = (*_HEADERS, "random.h") if plan.drops else _HEADERS
    headers = [kernels.joinpath(name).read_text() for name in names]
    labels = loss.has_labels
    size = size_text(plan.shapes[-1])
    x = f"current(work) + b * {size_text(plan.shapes[0])}"
    read = (
        f"read_flat({plan.sample}, {shape_text(plan.shapes[0])}, from, table, {x});"
        if plan.flat_input
        else f"read_image({shape_text(plan.shapes[0])}, from, table, {x});"
    )
    lists = (
        "const Lists lists = {work->list_offset, work->list_value, work->many_offset, "
        "work->many_count, work->many_value, work->partial}; (void)lists;"
    )
    many = f"{file.many_lists} + BLOCK * {file.sample_lists}"
    parts = [
        *head,
        *headers,
        f"#define BLOCK {block}",
        *([f"#define MOST_DRAWN {MOST_DRAWN}"] if plan.drops else []),
        f"#define DROPS {int(plan.drops)}",
        f"#define SAMPLE {plan.sample}",
        f"#define PARAMETERS {plan.parameters}",
        f"#define STATE {file.state}",
        f"#define OUTPUTS {outputs}",
        f"#define TARGET {1 if labels else outputs}",
        f"typedef {'int64_t' if labels else 'real'} target;",
        "typedef struct {",
        *(f"    {line}" for line in file.fields),
        f"    real scratch[{file.scratch}] __attribute__((aligned(64)));",
        f"    int32_t list_offset[BLOCK * {file.one_list}], many_offset[{many}];",
        "    real partial[TILE_ROWS * BLOCK * VL] __attribute__((aligned(64)));",
        f"    int32_t many_count[BLOCK + TILE_ROWS + {file.many_counts}];",
        f"    real list_value[BLOCK * {file.one_list}], many_value[{many}];",
        "    real model[STATE] __attribute__((aligned(64)));",
        "    real gradient[STATE] __attribute__((aligned(64)));",
        "#if PULL",
        "    real pull[STATE] __attribute__((aligned(64)));",
        "#endif",
        "#if MOMENTUM || ADAM",
        "    real velocity[STATE] __attribute__((aligned(64)));",
        "#endif",
        "#if ADAM",
        "    real second[STATE] __attribute__((aligned(64)));",
        "    double steps;",
        "#endif",
        f"    Debt debt; const real *table; int flip; real slack[{WIDEST}];",
        *(["    int drops; int64_t at;"] if plan.drops else []),
        "} Work;",
        "INLINE Place everything(Work *work) {",
        "    Place p = {work->model, 0, 0};",
        "#if PULL",
        "    p.pull = work->pull;",
        "#endif",
        "#if MOMENTUM",
        "    p.v = work->velocity;",
        "#endif",
        "    return p;",
        "}",
        f"INLINE real *current(Work *work) {{ return work->x0 + work->flip * BLOCK * "
        f"{size_text(plan.shapes[0])}; }}",
        *file.functions,
        _function("start_work(Work *work)", file.start),
        _function("unpack(const real *flat, real *state)", file.unpack),
        _function("pack(const real *state, real *flat)", file.pack),
        _function("add(const real *state, real *flat, real weight, real *room)", file.add),
        _function("refresh(Work *work)", file.refresh),
        _function(
            "read_sample(Work *work, int b, const given *from)",
            ["const real *table = work->table;", read],
        ),
        _apart("forward", "Work *work, int n", "work, n", [lists], file.forward),
        _function(
            "draw_dropout(Work *work, int64_t n, uint32_t seed)",
            ["Twister twister;", "seed_twister(&twister, seed);", *file.draw],
        )
        if plan.drops
        else "",
        _loss(loss, outputs, size, last),
        _apart(
            "backward",
            "Work *work, int own, int n, Step s, int later",
            "work, own, n, s, later",
            [
                "real *to = own ? work->gradient : MOMENTUM ? everything(work).v : work->model;",
                lists,
            ],
            file.backward,
        ),
        _function("settle(Work *work)", [lists, *file.settle]),
        f"static const real *output_of(const Work *work, int b) {{ return work->x{last} + b * "
        f"{size}; }}\n",
        f"static real *gradient_of(Work *work, int b) {{ return work->d{last} + b * {size}; }}\n",
        kernels.joinpath("driver.h").read_text(),
    ]
    return "\n".join(parts)
