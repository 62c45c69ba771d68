"""The C file of one network: its shapes as literals around the kernels beside this module.

Nothing here computes: it names buffers and writes one call for each layer and direction. The
compiler then sees every extent as a constant.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files

from .layers import WIDEST, SourceFile, rounded_up, shape_text, size_text, write_layers
from .plan import Plan
from .rule import Terms

_FUNCTIONS = {"EXP": "exp", "EXPM1": "expm1", "TANH_": "tanh", "ERF": "erf"}
_HEADERS = ("vectors.h", "rule.h", "layers.h", "convolution.h", "linear.h", "elementwise.h")


def _function(head: str, lines: list[str], kind: str = "static") -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"{kind} void {head} {{\n{body}\n}}\n"


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


def generate(plan: Plan, loss: str, dtype: str, terms: Terms, tables: int = 0) -> str:
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
    headers = [kernels.joinpath(name).read_text() for name in _HEADERS]
    labels = loss == "cross-entropy"
    size = size_text(plan.shapes[-1])
    scored = (
        f"cross_entropy({outputs}, {size}, n, whole, work->x{last}, work->d{last}, wanted, bad)"
        if labels
        else f"squared_error({outputs}, {size}, n, whole, work->x{last}, work->d{last}, wanted)"
    )
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
        "#if MOMENTUM",
        "    real velocity[STATE] __attribute__((aligned(64)));",
        "#endif",
        f"    Debt debt; const real *table; int flip; real slack[{WIDEST}];",
        "} Work;",
        "INLINE Place whole(Work *work) {",
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
        "static double loss(Work *work, int n, double whole, const target *const *wanted, int *bad)"
        f" {{\n    (void)bad;\n    return {scored};\n}}\n",
        _apart(
            "backward",
            "Work *work, int own, int n, Step s, int later",
            "work, own, n, s, later",
            ["real *to = own ? work->gradient : MOMENTUM ? whole(work).v : work->model;", lists],
            file.backward,
        ),
        _function("settle(Work *work)", [lists, *file.settle]),
        f"static const real *output_of(const Work *work, int b) {{ return work->x{last} + b * "
        f"{size}; }}\n",
        kernels.joinpath("driver.h").read_text(),
    ]
    return "\n".join(parts)
