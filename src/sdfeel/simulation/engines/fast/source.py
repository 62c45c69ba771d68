"""The C file of one network: its shapes as literals around the kernels beside this module.

Nothing here computes: it names buffers and writes one call for each layer and direction. The
compiler then sees every extent as a constant.
"""

from __future__ import annotations

from importlib.resources import files

from .layers import WIDEST, File, rounded_up, shape_text, size_text, write_layers
from .plan import Plan

__all__ = ["generate"]

_HEADERS = ("vectors.h", "layers.h", "convolution.h", "linear.h", "elementwise.h")


def _function(head: str, lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"static void {head} {{\n    (void)work;\n{body}\n}}\n"


def generate(plan: Plan, loss: str, dtype: str) -> str:
    """The whole C file as text."""
    file = File()
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
        *(
            f"#define {name} {function}{suffix}"
            for name, function in (
                ("EXP", "exp"),
                ("EXPM1", "expm1"),
                ("TANH_", "tanh"),
                ("ERF", "erf"),
            )
        ),
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
        f"read_flat({plan.sample}, {shape_text(plan.shapes[0])}, from, {x});"
        if plan.flat_input
        else f"read_image({shape_text(plan.shapes[0])}, from, {x});"
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
        f"    real gradient[{plan.parameters}] __attribute__((aligned(64)));",
        f"    Debt debt; int flip; real slack[{WIDEST}];",
        "} Work;",
        "INLINE void add_scaled(const int count, const real *d, real *w, real s) {",
        "    for (int i = 0; i < count; i++) w[i] += s * d[i];",
        "}",
        f"INLINE real *current(Work *work) {{ return work->x0 + work->flip * BLOCK * "
        f"{size_text(plan.shapes[0])}; }}",
        _function("start_work(Work *work)", file.start),
        _function(
            "unpack(Work *work, const real *model)",
            ["(void)model; work->debt.n = 0; work->flip = 0;", *file.unpack],
        ),
        _function("pack(Work *work, real *model)", ["(void)model;", *file.pack]),
        _function("refresh(Work *work, const real *model)", ["(void)model;", *file.refresh]),
        _function("read_sample(Work *work, int b, const real *from)", [read]),
        _function(
            "forward(Work *work, real *model, int n)", ["(void)model;", lists, *file.forward]
        ),
        "static double loss(Work *work, int n, double whole, const target *const *wanted, int *bad)"
        f" {{\n    (void)bad;\n    return {scored};\n}}\n",
        _function(
            "backward(Work *work, real *model, real *to, int own, int n, real s, int later)",
            ["(void)model; (void)to; (void)own; (void)later;", lists, *file.backward],
        ),
        _function("settle(Work *work, real *model)", ["(void)model;", lists, *file.settle]),
        _function(
            "clear_gradient(Work *work)",
            ["memset(work->gradient, 0, sizeof work->gradient);", *file.clear],
        ),
        _function("apply_gradient(Work *work, real *model, real s)", ["(void)model;", *file.apply]),
        _function(
            "pack_gradient(Work *work, real *out)",
            ["memcpy(out, work->gradient, sizeof work->gradient);", *file.pack_gradient],
        ),
        f"static const real *output_of(const Work *work, int b) {{ return work->x{last} + b * "
        f"{size}; }}\n",
        kernels.joinpath("driver.h").read_text(),
    ]
    return "\n".join(parts)
