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

/* partial[r][b] (+)= w[r] . x[b], lane by lane, over `vecs` vectors. */
INLINE void dots(const int rows, const int samples, const int vecs, const int row,
                 const real *restrict w, const real *restrict x, const int x_size,
                 real *restrict partial, const int room, const int fresh) {
    V sum[ACCUMULATORS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int b = 0; b < samples; b++)
        sum[b * rows + r] = fresh ? (V){0} : load(partial + (r * room + b) * VL);
    for (int i = 0; i < vecs * VL; i += VL) {
        V weight[2];
        UNROLL for (int r = 0; r < rows; r++) weight[r] = load(w + r * row + i);
        UNROLL for (int b = 0; b < samples; b++) {
            V value = load(x + b * x_size + i);
            HOLD(value);
            UNROLL for (int r = 0; r < rows; r++) sum[b * rows + r] += value * weight[r];
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int b = 0; b < samples; b++)
        save(partial + (r * room + b) * VL, sum[b * rows + r]);
}

INLINE void dots_of_rows(const int rows, const int vecs, const int row, int n, const real *w,
                         const real *x, const int x_size, real *partial, const int room,
                         const int fresh) {
    int b = 0;
    for (; b + 5 <= n; b += 5)
        dots(rows, 5, vecs, row, w, x + b * x_size, x_size, partial + b * VL, room, fresh);
    x += b * x_size, partial += b * VL;
    switch (n - b) {
    case 4: dots(rows, 4, vecs, row, w, x, x_size, partial, room, fresh); break;
    case 3: dots(rows, 3, vecs, row, w, x, x_size, partial, room, fresh); break;
    case 2: dots(rows, 2, vecs, row, w, x, x_size, partial, room, fresh); break;
    case 1: dots(rows, 1, vecs, row, w, x, x_size, partial, room, fresh); break;
    default: break;
    }
}

/* A piece of one row: w += scale * the sum over e of value[e] * x[offset[e]], for a literal count, so
   that the values stay in registers and no branch depends on it but one in front. */
INLINE void add_few(const int count, const int vecs, const int lanes, real *restrict w,
                    const real *restrict x, const int32_t *offset, const real *value, real scale) {
    V g[8];
    const real *from[8];
    UNROLL for (int e = 0; e < count; e++) g[e] = splat(scale * value[e]), from[e] = x + offset[e];
    int i = 0;
    for (; i + 4 * VL <= vecs * VL; i += 4 * VL) {
        V sum[4];
        UNROLL for (int v = 0; v < 4; v++) sum[v] = load(w + i + v * VL);
        UNROLL for (int e = 0; e < count; e++) UNROLL for (int v = 0; v < 4; v++)
            sum[v] += g[e] * load(from[e] + i + v * VL);
        UNROLL for (int v = 0; v < 4; v++) save(w + i + v * VL, sum[v]);
    }
    for (; i < vecs * VL; i += VL) {
        V sum = load(w + i);
        UNROLL for (int e = 0; e < count; e++) sum += g[e] * load(from[e] + i);
        save(w + i, sum);
    }
    if (lanes < VL) save(w + (vecs - 1) * VL, keep_lanes(load(w + (vecs - 1) * VL), lanes));
}

INLINE void add_list(const int vecs, const int lanes, real *w, const real *x,
                     const int32_t *offset, const real *value, int count, real scale) {
    for (; count > 8; count -= 8, offset += 8, value += 8)
        add_few(8, vecs, lanes, w, x, offset, value, scale);
    switch (count) {
    case 1: add_few(1, vecs, lanes, w, x, offset, value, scale); break;
    case 2: add_few(2, vecs, lanes, w, x, offset, value, scale); break;
    case 3: add_few(3, vecs, lanes, w, x, offset, value, scale); break;
    case 4: add_few(4, vecs, lanes, w, x, offset, value, scale); break;
    case 5: add_few(5, vecs, lanes, w, x, offset, value, scale); break;
    case 6: add_few(6, vecs, lanes, w, x, offset, value, scale); break;
    case 7: add_few(7, vecs, lanes, w, x, offset, value, scale); break;
    case 8: add_few(8, vecs, lanes, w, x, offset, value, scale); break;
    default: break;
    }
}

/* What a step owes to the weights: scale * the sum over n samples of dy x'. The first layer's debt
   is paid by the next step, piece by piece just before a piece is used, so that a step walks
   through a large matrix once and not twice. */
typedef struct {
    int n;
    const real *x, *dy;
    real scale;
} Debt;

enum { TILE_ROWS = 16, TILE_VECTORS = 50 }; /* weights and both inputs of a tile fit into L1 */

/* Rows x vecs of the weights: pay, then use. */
INLINE void linear_tile(const int vecs, const int lanes, const int row, const int x_size, int rows,
                        int n, const int forward, const int fresh, const real *x, real *w,
                        Debt debt, const int room, Lists lists) {
    for (int r = 0; r < rows; r += 2) {
        const int both = r + 1 < rows;
        real *here = w + r * row;
        if (debt.n)
            for (int i = r; i <= r + both; i++)
                add_list(vecs, lanes, w + i * row, debt.x, lists.many_offset + i * room,
                         lists.many_value + i * room, lists.many_count[i], debt.scale);
        real *partial = lists.partial + r * room * VL;
        if (!forward) continue;
        if (both) dots_of_rows(2, vecs, row, n, here, x, x_size, partial, room, fresh);
        else dots_of_rows(1, vecs, row, n, here, x, x_size, partial, room, fresh);
    }
}

/* y = relu(w x + bias) after w and bias have got what is owed to them. `forward` 0: pay only. */
INLINE void linear_walk(const int ins, const int outs, const int biased, const int relu,
                        const int x_size, const int y_size, const int forward, const int room,
                        int n, const real *x, real *w, real *bias, real *y, Debt debt,
                        Lists lists) {
    const int vecs = vectors(ins), row = vecs * VL, lanes = ins - (vecs - 1) * VL;
    const int pieces = (vecs + TILE_VECTORS - 1) / TILE_VECTORS;
    const int size = (vecs + pieces - 1) / pieces, last = vecs - (pieces - 1) * size;
    for (int o = 0; o < outs; o += TILE_ROWS) {
        const int rows = least(TILE_ROWS, outs - o);
        real *here = w + o * row;
        for (int r = 0; r < rows && debt.n; r++) {
            int count = 0;
            for (int b = 0; b < debt.n; b++) {
                const real g = debt.dy[b * y_size + o + r];
                lists.many_offset[r * room + count] = b * x_size;
                lists.many_value[r * room + count] = g;
                count += g != 0;
            }
            lists.many_count[r] = count;
            if (biased) bias[o + r] += debt.scale * sum_of(lists.many_value + r * room, count);
        }
        for (int p = 0; p < pieces - 1; p++) {
            const int at = p * size * VL;
            Debt part = {debt.n, debt.x + at, debt.dy, debt.scale};
            if (p == 0)
                linear_tile(size, VL, row, x_size, rows, n, forward, 1, x, here, part, room, lists);
            else
                linear_tile(size, VL, row, x_size, rows, n, forward, 0, x + at, here + at, part,
                            room, lists);
        }
        const int at = (pieces - 1) * size * VL;
        Debt part = {debt.n, debt.x + at, debt.dy, debt.scale};
        linear_tile(last, lanes, row, x_size, rows, n, forward, pieces == 1, x + at, here + at,
                    part, room, lists);
        for (int r = 0; r < rows && forward; r++)
            for (int b = 0; b < n; b++) {
                real total = lanes_sum(load(lists.partial + (r * room + b) * VL));
                if (biased) total += bias[o + r];
                y[b * y_size + o + r] = relu && total <= 0 ? 0 : total;
            }
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
