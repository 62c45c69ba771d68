/* Linear layers. Weights stay as PyTorch has them, (out, in); rows are filled up to whole vectors
   with zeros unless they are whole already, and then the model's own memory is used. */

/* The columns follow the order of the activations, (row, column, channel), where a flattened image
   comes in; PyTorch's order is (channel, row, column). */
INLINE void unpack_columns(const int outs, const int pixels, const int channels, const real *flat,
                           real *w) {
    const int width = pixels * channels, padded = vectors(width) * VL;
    for (int o = 0; o < outs; o++) {
        for (int p = 0; p < pixels; p++)
            for (int c = 0; c < channels; c++)
                w[o * padded + p * channels + c] = flat[o * width + c * pixels + p];
        for (int i = width; i < padded; i++) w[o * padded + i] = 0;
    }
}

INLINE void pack_columns(const int outs, const int pixels, const int channels, const real *w,
                         real *flat) {
    const int width = pixels * channels, padded = vectors(width) * VL;
    for (int o = 0; o < outs; o++)
        for (int c = 0; c < channels; c++)
            for (int p = 0; p < pixels; p++)
                flat[o * width + c * pixels + p] = w[o * padded + p * channels + c];
}

INLINE void dots(const int rows, const int samples, const int width, const int relu,
                 const real *restrict w, const real *bias, const real *restrict x, const int x_size,
                 real *restrict y, const int y_size) {
    V sum[ACCUMULATORS];
    UNROLL for (int i = 0; i < rows * samples; i++) sum[i] = (V){0};
    for (int i = 0; i < width; i += VL) {
        V weight[4];
        UNROLL for (int r = 0; r < rows; r++) weight[r] = load(w + r * width + i);
        UNROLL for (int b = 0; b < samples; b++) {
            const V value = load(x + b * x_size + i);
            UNROLL for (int r = 0; r < rows; r++) sum[b * rows + r] += value * weight[r];
        }
    }
    UNROLL for (int b = 0; b < samples; b++) UNROLL for (int r = 0; r < rows; r++) {
        real total = lanes_sum(sum[b * rows + r]) + (bias ? bias[r] : 0);
        if (relu) total = total <= 0 ? 0 : total;
        y[b * y_size + r] = total;
    }
}

INLINE void dots_of_rows(const int rows, const int width, const int relu, int n, const real *w,
                         const real *bias, const real *x, const int x_size, real *y,
                         const int y_size) {
    int b = 0;
    for (; b + 5 <= n; b += 5)
        dots(rows, 5, width, relu, w, bias, x + b * x_size, x_size, y + b * y_size, y_size);
    x += b * x_size, y += b * y_size;
    switch (n - b) {
    case 4: dots(rows, 4, width, relu, w, bias, x, x_size, y, y_size); break;
    case 3: dots(rows, 3, width, relu, w, bias, x, x_size, y, y_size); break;
    case 2: dots(rows, 2, width, relu, w, bias, x, x_size, y, y_size); break;
    case 1: dots(rows, 1, width, relu, w, bias, x, x_size, y, y_size); break;
    default: break;
    }
}

/* Adds scale * gradient to rows `from` to `to` of the weights: one read and one write of each, the
   gradient itself is never stored. */
INLINE void linear_update(const int ins, const int outs, const int biased, const int x_size,
                          const int y_size, int from, int to, int n, const real *x, const real *dy,
                          real *dw, real *db, real scale, Lists lists) {
    const int row = vectors(ins) * VL;
    (void)outs;
    for (int o = from; o < to; o++) {
        int count = 0;
        for (int b = 0; b < n; b++) {
            const real g = dy[b * y_size + o];
            lists.offset[count] = b * x_size;
            lists.value[count] = g;
            count += g != 0;
        }
        if (!count) continue;
        combine(1, ins, dw + o * row, 0, x, 0, lists.offset, lists.value, count, scale, ADD);
        if (biased) db[o] += scale * sum_of(lists.value, count);
    }
}

/* What the last step still owes to the weights of the first layer: paid row by row just before the
   row is used, so that a step walks through a large matrix once and not twice. */
typedef struct {
    int n;
    const real *x, *dy;
    real scale;
} Debt;

INLINE void linear_forward(const int ins, const int outs, const int biased, const int relu,
                           const int x_size, const int y_size, int n, const real *x, real *w,
                           real *bias, real *y, Debt debt, Lists lists) {
    const int row = vectors(ins) * VL;
    int o = 0;
    for (; o + 2 <= outs; o += 2) {
        if (debt.n)
            linear_update(ins, outs, biased, x_size, y_size, o, o + 2, debt.n, debt.x, debt.dy, w,
                          bias, debt.scale, lists);
        dots_of_rows(2, row, relu, n, w + o * row, biased ? bias + o : 0, x, x_size, y + o, y_size);
    }
    if (outs % 2) {
        if (debt.n)
            linear_update(ins, outs, biased, x_size, y_size, o, o + 1, debt.n, debt.x, debt.dy, w,
                          bias, debt.scale, lists);
        dots_of_rows(1, row, relu, n, w + o * row, biased ? bias + o : 0, x, x_size, y + o, y_size);
    }
}

/* A block of columns for all samples before the next: the block of weights stays in the cache. */
INLINE void linear_inputs_block(const int vecs, const int x_size, const int room, int n,
                                const real *w, real *dx, Lists lists) {
    for (int b = 0; b < n; b++)
        combine_block(1, vecs, VL, dx + b * x_size, 0, w, 0, lists.many_offset + b * room,
                      lists.many_value + b * room, lists.many_count[b], 1, SET);
}

INLINE void linear_inputs(const int ins, const int outs, const int x_size, const int y_size, int n,
                          const real *dy, const real *w, real *dx, Lists lists) {
    const int vecs = vectors(ins), row = vecs * VL;
    const int pieces = (vecs + ACCUMULATORS - 1) / ACCUMULATORS;
    const int size = (vecs + pieces - 1) / pieces, last = vecs - (pieces - 1) * size;
    for (int b = 0; b < n; b++) {
        int count = 0;
        for (int o = 0; o < outs; o++) {
            const real g = dy[b * y_size + o];
            lists.many_offset[b * outs + count] = o * row;
            lists.many_value[b * outs + count] = g;
            count += g != 0;
        }
        lists.many_count[b] = count;
    }
    for (int p = 0; p < pieces - 1; p++)
        linear_inputs_block(size, x_size, outs, n, w + p * size * VL, dx + p * size * VL, lists);
    linear_inputs_block(last, x_size, outs, n, w + (pieces - 1) * size * VL,
                        dx + (pieces - 1) * size * VL, lists);
}
