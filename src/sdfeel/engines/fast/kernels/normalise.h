/* Sums of activations, group and layer normalisation, depthwise convolutions: loops over channels,
   which lie side by side, with literal lengths. What the kernels here write of gradients of
   parameters lies apart (`grads`) and is added by the rule afterwards. */

INLINE int at_row(Shape s, int row) { return origin_of(s) + row * row_of(s); }

/* to += from, and to += scale from */
static void add_to(int count, real *restrict to, const real *restrict from) {
    for (int i = 0; i < count; i++) to[i] += from[i];
}

INLINE void add_scaled(const int count, real *restrict to, const real *restrict from, real scale) {
    for (int i = 0; i < count; i++) to[i] += scale * from[i];
}

/* ---- sums; `in` has no frame, `out` may ---- */

INLINE void add_forward(const Shape in, const Shape out, const int relu, int n, const real *a,
                        const real *b, real *y) {
    const int width = in.width * in.channels;
    for (int s = 0; s < n; s++)
        for (int r = 0; r < in.height; r++) {
            const real *one = a + s * in.size + r * width, *other = b + s * in.size + r * width;
            real *restrict to = y + s * out.size + at_row(out, r);
            for (int i = 0; i < width; i++) {
                const real sum = one[i] + other[i];
                to[i] = relu && sum <= 0 ? 0 : sum;
            }
        }
}

INLINE void add_backward(const Shape in, const Shape out, int n, real *dx, const real *dy) {
    const int width = in.width * in.channels;
    for (int s = 0; s < n; s++)
        for (int r = 0; r < in.height; r++)
            memcpy(dx + s * in.size + r * width, dy + s * out.size + at_row(out, r),
                   sizeof(real) * (unsigned)width);
}

/* ---- normalisation: mean 0 and variance 1 within a group of channels, over all pixels; then
   weights, of each channel or (`each`) of each element; `stats` gets mean and 1 / deviation ---- */

INLINE void norm_forward(const Shape in, const Shape out, const int groups, const int each,
                         const real eps, const int relu, int n, const real *x, const real *weight,
                         const real *bias, real *y, real *stats) {
    const int C = in.channels, pixels = in.height * in.width, size = C / groups;
    for (int b = 0; b < n; b++) {
        const real *from = x + b * in.size;
        real sum[C], scale[C], shift[C];
        for (int c = 0; c < C; c++) sum[c] = 0;
        for (int p = 0; p < pixels; p++)
            for (int c = 0; c < C; c++) sum[c] += from[p * C + c];
        for (int g = 0; g < groups; g++) {
            real total = 0;
            for (int c = g * size; c < (g + 1) * size; c++) total += sum[c];
            const real mean = total / (real)(pixels * size);
            for (int c = g * size; c < (g + 1) * size; c++) shift[c] = mean;
        }
        for (int c = 0; c < C; c++) sum[c] = 0;
        for (int p = 0; p < pixels; p++)
            for (int c = 0; c < C; c++) {
                const real d = from[p * C + c] - shift[c];
                sum[c] += d * d;
            }
        for (int g = 0; g < groups; g++) {
            real total = 0;
            for (int c = g * size; c < (g + 1) * size; c++) total += sum[c];
            const real factor = 1 / SQRT(total / (real)(pixels * size) + eps);
            stats[(b * groups + g) * 2] = shift[g * size];
            stats[(b * groups + g) * 2 + 1] = factor;
            for (int c = g * size; c < (g + 1) * size; c++) scale[c] = factor;
        }
        for (int p = 0; p < pixels; p++) {
            real *restrict to = y + b * out.size + at_row(out, p / in.width) + p % in.width * C;
            const int w = each ? p * C : 0;
            for (int c = 0; c < C; c++) {
                real value = (from[p * C + c] - shift[c]) * scale[c];
                if (weight) value *= weight[w + c];
                if (bias) value += bias[w + c];
                to[c] = relu && value <= 0 ? 0 : value;
            }
        }
    }
}

/* With h the normalised x and e = dy weight: dx = (e - mean e - h mean(e h)) / deviation. `given`:
   how many of weight and bias there are; their gradients lie one behind the other. */
INLINE void norm_backward(const Shape in, const Shape out, const int groups, const int each,
                          const int given, int n, const real *x, const real *weight,
                          const real *dy, const real *stats, real *dx, real *grads) {
    const int C = in.channels, pixels = in.height * in.width, size = C / groups;
    const int count = each ? pixels * C : C;
    for (int i = 0; i < given * count; i++) grads[i] = 0;
    for (int b = 0; b < n; b++) {
        const real *from = x + b * in.size, *stat = stats + b * groups * 2;
        real mean[C], factor[C], plain[C], along[C];
        for (int c = 0; c < C; c++) {
            mean[c] = stat[c / size * 2], factor[c] = stat[c / size * 2 + 1];
            plain[c] = along[c] = 0;
        }
        for (int p = 0; p < pixels; p++) {
            const real *d = dy + b * out.size + at_row(out, p / in.width) + p % in.width * C;
            const int w = each ? p * C : 0;
            for (int c = 0; c < C; c++) {
                const real h = (from[p * C + c] - mean[c]) * factor[c];
                const real e = weight ? d[c] * weight[w + c] : d[c];
                plain[c] += e, along[c] += e * h;
                if (given > 0) grads[w + c] += d[c] * h;
                if (given > 1) grads[count + w + c] += d[c];
            }
        }
        if (!dx) continue;
        for (int g = 0; g < groups; g++) {
            real a = 0, h = 0;
            for (int c = g * size; c < (g + 1) * size; c++) a += plain[c], h += along[c];
            a /= (real)(pixels * size), h /= (real)(pixels * size);
            for (int c = g * size; c < (g + 1) * size; c++) plain[c] = a, along[c] = h;
        }
        for (int p = 0; p < pixels; p++) {
            const real *d = dy + b * out.size + at_row(out, p / in.width) + p % in.width * C;
            real *restrict to = dx + b * in.size + p * C;
            const int w = each ? p * C : 0;
            for (int c = 0; c < C; c++) {
                const real h = (from[p * C + c] - mean[c]) * factor[c];
                const real e = weight ? d[c] * weight[w + c] : d[c];
                to[c] = factor[c] * (e - plain[c] - h * along[c]);
            }
        }
    }
}

/* ---- a convolution of each channel by itself; weights lie as (row, column, channel) ---- */

INLINE void depthwise_forward(const Shape in, const Window k, const Shape out, const int relu,
                              int n, const real *x, const real *w, const real *bias, real *y) {
    const int C = in.channels;
    for (int b = 0; b < n; b++)
        for (int i = 0; i < out.height; i++)
            for (int j = 0; j < out.width; j++) {
                real *restrict to = y + b * out.size + at_row(out, i) + j * C;
                const real *corner =
                    x + b * in.size + i * k.step_y * row_of(in) + j * k.step_x * C;
                real sum[C];
                for (int c = 0; c < C; c++) sum[c] = bias ? bias[c] : 0;
                for (int r = 0; r < k.rows; r++)
                    for (int q = 0; q < k.columns; q++) {
                        const real *from = corner + r * row_of(in) + q * C;
                        const real *by = w + (r * k.columns + q) * C;
                        for (int c = 0; c < C; c++) sum[c] += from[c] * by[c];
                    }
                for (int c = 0; c < C; c++) to[c] = relu && sum[c] <= 0 ? 0 : sum[c];
            }
}

INLINE void depthwise_backward(const Shape in, const Window k, const Shape out, const int biased,
                               int n, const real *x, const real *w, const real *dy, real *dx,
                               real *restrict grads) {
    const int C = in.channels, count = k.rows * k.columns * C;
    for (int i = 0; i < count + biased * C; i++) grads[i] = 0;
    for (int b = 0; b < n; b++) {
        if (dx) memset(dx + b * in.size, 0, sizeof(real) * (unsigned)in.size);
        for (int i = 0; i < out.height; i++)
            for (int j = 0; j < out.width; j++) {
                const real *d = dy + b * out.size + at_row(out, i) + j * C;
                const int corner = b * in.size + i * k.step_y * row_of(in) + j * k.step_x * C;
                for (int c = 0; biased && c < C; c++) grads[count + c] += d[c];
                for (int r = 0; r < k.rows; r++)
                    for (int q = 0; q < k.columns; q++) {
                        const int at = corner + r * row_of(in) + q * C;
                        const int tap = (r * k.columns + q) * C;
                        for (int c = 0; c < C; c++) grads[tap + c] += d[c] * x[at + c];
                        if (!dx) continue;
                        real *restrict to = dx + at;
                        for (int c = 0; c < C; c++) to[c] += d[c] * w[tap + c];
                    }
            }
    }
}
