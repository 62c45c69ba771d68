/* Activations that are not folded into the layer before them. */

enum { RELU, LEAKY_RELU, ELU, TANH, SIGMOID, SILU, GELU, GELU_TANH, RELU6, COPY };

#define ROOT_HALF 0.70710678118654752440
#define ROOT_2_OVER_PI 0.79788456080286535588
#define ROOT_HALF_OVER_PI 0.39894228040143267794

INLINE real sigmoid(real x) { return 1 / (1 + EXP(-x)); }

INLINE real activate(const int kind, const real slope, real x) {
    if (kind == RELU) return x <= 0 ? 0 : x;
    if (kind == COPY) return x;
    if (kind == RELU6) return x <= 0 ? 0 : x >= 6 ? 6 : x;
    if (kind == LEAKY_RELU) return x > 0 ? x : slope * x;
    if (kind == ELU) return x > 0 ? x : slope * EXPM1(x);
    if (kind == TANH) return TANH_(x);
    if (kind == SIGMOID) return sigmoid(x);
    if (kind == SILU) return x * sigmoid(x);
    if (kind == GELU) return (real)0.5 * x * (1 + ERF(x * (real)ROOT_HALF));
    const real inner = (real)ROOT_2_OVER_PI * (x + (real)0.044715 * x * x * x);
    return (real)0.5 * x * (1 + TANH_(inner));
}

INLINE real derivative(const int kind, const real slope, real x, real y) {
    if (kind == RELU) return y <= 0 ? 0 : 1;
    if (kind == COPY) return 1;
    if (kind == RELU6) return x <= 0 || x >= 6 ? 0 : 1;
    if (kind == LEAKY_RELU) return x > 0 ? 1 : slope;
    if (kind == ELU) return x > 0 ? 1 : slope * EXP(x);
    if (kind == TANH) return 1 - y * y;
    if (kind == SIGMOID) return y * (1 - y);
    if (kind == SILU) {
        const real s = sigmoid(x);
        return s * (1 + x * (1 - s));
    }
    if (kind == GELU)
        return (real)0.5 * (1 + ERF(x * (real)ROOT_HALF)) +
               x * (real)ROOT_HALF_OVER_PI * EXP((real)-0.5 * x * x);
    const real inner = (real)ROOT_2_OVER_PI * (x + (real)0.044715 * x * x * x);
    const real t = TANH_(inner);
    return (real)0.5 * (1 + t) + (real)0.5 * x * (1 - t * t) * (real)ROOT_2_OVER_PI *
                                     (1 + (real)(3 * 0.044715) * x * x);
}

/* `in` has no frame (only convolutions want one), `out` may. */
INLINE void activation_forward(const int kind, const real slope, const Shape in, const Shape out,
                               int n, const real *x, real *y) {
    const int width = in.width * in.channels;
    for (int b = 0; b < n; b++)
        for (int r = 0; r < in.height; r++)
            for (int i = 0; i < width; i++)
                y[b * out.size + origin_of(out) + r * row_of(out) + i] =
                    activate(kind, slope, x[b * in.size + r * width + i]);
}

INLINE void activation_backward(const int kind, const real slope, const Shape in, const Shape out,
                                int n, const real *x, real *dx, const real *y, const real *dy) {
    const int width = in.width * in.channels;
    for (int b = 0; b < n; b++)
        for (int r = 0; r < in.height; r++)
            for (int i = 0; i < width; i++) {
                const int from = b * in.size + r * width + i;
                const int to = b * out.size + origin_of(out) + r * row_of(out) + i;
                dx[from] = dy[to] * derivative(kind, slope, x[from], y[to]);
            }
}
