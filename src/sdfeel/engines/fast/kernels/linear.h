/* Linear layers. Weights lie as PyTorch has them, (out, in), rows filled up to whole vectors with
   zeros. */

/* A square of a vector's length, turned: bit by bit of row and lane, those that differ change
   places. */
INLINE void turn_square(const real *from, const int from_row, real *to, const int to_row) {
    V v[LANES];
    UNROLL for (int i = 0; i < VL; i++) v[i] = load(from + i * from_row);
    UNROLL for (int d = 1; d < VL; d *= 2) UNROLL for (int i = 0; i < VL; i++)
        if (!(i & d)) {
            const V a = v[i], b = v[i + d];
            v[i] = blended(a, swapped(b, d), d), v[i + d] = blended(swapped(a, d), b, d);
        }
    UNROLL for (int i = 0; i < VL; i++) save(to + i * to_row, v[i]);
}

/* A matrix of rows x columns, turned; squares at its ends may lie over others. */
INLINE void turn(const int rows, const int columns, const real *restrict from,
                 real *restrict to) {
    if (rows < VL || columns < VL) {
        for (int c = 0; c < columns; c++)
            for (int r = 0; r < rows; r++) to[c * rows + r] = from[r * columns + c];
        return;
    }
    for (int i = 0; i < rows; i += VL)
        for (int j = 0; j < columns; j += VL) {
            const int r = least(i, rows - VL), c = least(j, columns - VL);
            turn_square(from + r * columns + c, columns, to + c * rows + r, rows);
        }
}

/* The columns follow the order of the activations, (row, column, channel), where a flattened image
   comes in; PyTorch's order is (channel, row, column). */
INLINE void unpack_columns(const int outs, const int pixels, const int channels, const real *flat,
                           real *w) {
    const int width = pixels * channels, padded = vectors(width) * VL;
    for (int o = 0; o < outs; o++) {
        real *row = w + o * padded;
        const real *from = flat + o * width;
        if (pixels == 1 || channels == 1) memcpy(row, from, sizeof(real) * (unsigned)width);
        else turn(channels, pixels, from, row);
        for (int i = width; i < padded; i++) row[i] = 0;
    }
}

INLINE void pack_columns(const int outs, const int pixels, const int channels, const real *w,
                         real *flat) {
    const int width = pixels * channels, padded = vectors(width) * VL;
    for (int o = 0; o < outs; o++) {
        const real *row = w + o * padded;
        real *to = flat + o * width;
        if (pixels == 1 || channels == 1) memcpy(to, row, sizeof(real) * (unsigned)width);
        else turn(pixels, channels, row, to);
    }
}

/* flat += weight * w; `room` is for a row that has to be turned. */
INLINE void add_columns(const int outs, const int pixels, const int channels, const real *w,
                        real *restrict flat, real weight, real *room) {
    const int width = pixels * channels, padded = vectors(width) * VL;
    for (int o = 0; o < outs; o++) {
        const real *row = w + o * padded;
        if (pixels != 1 && channels != 1) turn(pixels, channels, row, room), row = room;
        for (int i = 0; i < width; i++) flat[o * width + i] += weight * row[i];
    }
}

enum { DOT_SAMPLES = 5, DOT_ROWS = ACCUMULATORS / DOT_SAMPLES };

/* partial[r][b] (+)= w[r] . x[b], lane by lane, over `vecs` vectors. */
INLINE void dots(const int rows, const int samples, const int vecs, const int row,
                 const real *restrict w, const real *restrict x, const int x_size,
                 real *restrict partial, const int room, const int fresh) {
    V sum[ACCUMULATORS];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int b = 0; b < samples; b++)
        sum[b * rows + r] = fresh ? (V){0} : load(partial + (r * room + b) * VL);
    for (int i = 0; i < vecs * VL; i += VL) {
        V weight[DOT_ROWS];
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
    for (; b + DOT_SAMPLES <= n; b += DOT_SAMPLES)
        dots(rows, DOT_SAMPLES, vecs, row, w, x + b * x_size, x_size, partial + b * VL, room, fresh);
    x += b * x_size, partial += b * VL;
    switch (n - b) {
    case 4: dots(rows, 4, vecs, row, w, x, x_size, partial, room, fresh); break;
    case 3: dots(rows, 3, vecs, row, w, x, x_size, partial, room, fresh); break;
    case 2: dots(rows, 2, vecs, row, w, x, x_size, partial, room, fresh); break;
    case 1: dots(rows, 1, vecs, row, w, x, x_size, partial, room, fresh); break;
    default: break;
    }
}

enum { AT_ONCE = 10 }; /* samples that a walk through a row pays for: a batch of the paper's */

/* A piece of one row gets the sum over e of value[e] * x[offset[e]], for a literal count, so that
   the values stay in registers and no branch depends on it but one in front. */
INLINE void pay_few(const int how, const int count, const int vecs, const int lanes, const Place p,
                    const real *restrict x, const int32_t *offset, const real *value,
                    const Step s) {
    V g[AT_ONCE];
    const real *from[AT_ONCE];
    UNROLL for (int e = 0; e < count; e++)
        g[e] = splat(s.scale * value[e]), from[e] = x + offset[e];
    int i = 0;
    for (; i + 4 * VL <= vecs * VL; i += 4 * VL) {
        V sum[4];
        UNROLL for (int v = 0; v < 4; v++) sum[v] = opened(how, p, i + v * VL, s);
        UNROLL for (int e = 0; e < count; e++) UNROLL for (int v = 0; v < 4; v++)
            sum[v] += g[e] * load(from[e] + i + v * VL);
        UNROLL for (int v = 0; v < 4; v++) finish(how, p, i + v * VL, sum[v], s);
    }
    for (; i < vecs * VL; i += VL) {
        V sum = opened(how, p, i, s);
        UNROLL for (int e = 0; e < count; e++) sum += g[e] * load(from[e] + i);
        finish(how, p, i, sum, s);
    }
    if (lanes == VL) return;
    i = (vecs - 1) * VL;
    save(p.w + i, keep_lanes(load(p.w + i), lanes));
    if (how == BY_RULE && MOMENTUM) save(p.v + i, keep_lanes(load(p.v + i), lanes));
}

INLINE void pay_at_once(const int how, const int vecs, const int lanes, const Place p,
                        const real *x, const int32_t *offset, const real *value, int count,
                        const Step s) {
    switch (count) {
    case 0:
        if (how == BY_RULE) pay_few(how, 0, vecs, lanes, p, x, offset, value, s);
        break;
    case 1: pay_few(how, 1, vecs, lanes, p, x, offset, value, s); break;
    case 2: pay_few(how, 2, vecs, lanes, p, x, offset, value, s); break;
    case 3: pay_few(how, 3, vecs, lanes, p, x, offset, value, s); break;
    case 4: pay_few(how, 4, vecs, lanes, p, x, offset, value, s); break;
    case 5: pay_few(how, 5, vecs, lanes, p, x, offset, value, s); break;
    case 6: pay_few(how, 6, vecs, lanes, p, x, offset, value, s); break;
    case 7: pay_few(how, 7, vecs, lanes, p, x, offset, value, s); break;
    case 8: pay_few(how, 8, vecs, lanes, p, x, offset, value, s); break;
    case 9: pay_few(how, 9, vecs, lanes, p, x, offset, value, s); break;
    default: pay_few(how, AT_ONCE, vecs, lanes, p, x, offset, value, s); break;
    }
}

INLINE void pay_list(const int how, const int vecs, const int lanes, const Place p, const real *x,
                     const int32_t *offset, const real *value, int count, const Step s) {
    const int ruled = how == BY_RULE && RULED;
    if (ruled && count <= AT_ONCE) {
        pay_at_once(BY_RULE, vecs, lanes, p, x, offset, value, count, s);
        return;
    }
    const Place to = ruled && MOMENTUM ? (Place){p.v, 0, 0} : p;
    if (ruled) before_gradient(vecs * VL, p, s);
    for (; count > AT_ONCE; count -= AT_ONCE, offset += AT_ONCE, value += AT_ONCE)
        pay_few(ADD_ONLY, AT_ONCE, vecs, lanes, to, x, offset, value, s);
    pay_at_once(ADD_ONLY, vecs, lanes, to, x, offset, value, count, s);
    if (ruled) after_gradient(vecs * VL, p, s);
}

/* Two rows that owe to the same ten samples: an input that is read serves both. */
INLINE void pay_pair(const int how, const int vecs, const int lanes, const int row,
                     const int x_size, const Place p, const real *restrict x, const real *value,
                     const real *below, const Step s) {
    V g[2][AT_ONCE];
    const Place both[2] = {p, shifted(p, row)};
    UNROLL for (int e = 0; e < AT_ONCE; e++)
        g[0][e] = splat(s.scale * value[e]), g[1][e] = splat(s.scale * below[e]);
    int i = 0;
    for (; i + 2 * VL <= vecs * VL; i += 2 * VL) {
        V sum[2][2];
        UNROLL for (int r = 0; r < 2; r++) UNROLL for (int v = 0; v < 2; v++)
            sum[r][v] = opened(how, both[r], i + v * VL, s);
        UNROLL for (int e = 0; e < AT_ONCE; e++) UNROLL for (int v = 0; v < 2; v++) {
            const V input = load(x + e * x_size + i + v * VL);
            UNROLL for (int r = 0; r < 2; r++) sum[r][v] += g[r][e] * input;
        }
        UNROLL for (int r = 0; r < 2; r++) UNROLL for (int v = 0; v < 2; v++)
            finish(how, both[r], i + v * VL, sum[r][v], s);
    }
    for (; i < vecs * VL; i += VL) UNROLL for (int r = 0; r < 2; r++) {
        V sum = opened(how, both[r], i, s);
        UNROLL for (int e = 0; e < AT_ONCE; e++) sum += g[r][e] * load(x + e * x_size + i);
        finish(how, both[r], i, sum, s);
    }
    if (lanes == VL) return;
    i = (vecs - 1) * VL;
    UNROLL for (int r = 0; r < 2; r++) {
        save(both[r].w + i, keep_lanes(load(both[r].w + i), lanes));
        if (how == BY_RULE && MOMENTUM)
            save(both[r].v + i, keep_lanes(load(both[r].v + i), lanes));
    }
}

/* What a step owes to the weights: the sum over n samples of dy x', and the rest of its rule. The
   first layer's debt is paid by the next step, piece by piece just before a piece is used, so that
   a step walks through a large matrix once and not twice. */
typedef struct {
    int n;
    const real *x, *dy;
    Step step;
} Debt;

/* Where few sums fit into the registers, a tile of both inputs stays in L1. More of them read the
   inputs so seldom that L2 is near enough, and sums are not put down and taken up for each tile. */
enum { TILE_ROWS = 16, TILE_VECTORS = (DOT_ROWS < 4 ? 1088 : 3136) / VECTOR_BYTES };

/* Rows `first` to `end`: each what it owes, two at a time where both owe to all of ten samples. */
INLINE void pay_rows(const int how, const int vecs, const int lanes, const int row,
                     const int x_size, int first, int end, const Place w, const Debt debt,
                     const int room, Lists lists) {
    const int paired = 2 * AT_ONCE <= ACCUMULATORS && debt.n == AT_ONCE;
    for (int i = first; i < end; i++) {
        const int32_t *count = lists.many_count + i;
        const real *value = lists.many_value + i * room;
        if (paired && i + 1 < end && count[0] == AT_ONCE && count[1] == AT_ONCE)
            pay_pair(RULED ? how : ADD_ONLY, vecs, lanes, row, x_size, shifted(w, i++ * row),
                     debt.x, value, value + room, debt.step);
        else
            pay_list(how, vecs, lanes, shifted(w, i * row), debt.x, lists.many_offset + i * room,
                     value, *count, debt.step);
    }
}

/* Rows x vecs of the weights: pay, then use. */
INLINE void linear_tile(const int how, const int vecs, const int lanes, const int row,
                        const int x_size, int rows, int n, const int forward, const int fresh,
                        const real *x, const Place w, const Debt debt, const int room,
                        Lists lists) {
    for (int r = 0; r < rows;) {
        const int few = r + DOT_ROWS <= rows ? DOT_ROWS : 1;
        if (debt.n)
            pay_rows(how, vecs, lanes, row, x_size, r, r + few, w, debt, room, lists);
        const real *here = w.w + r * row;
        real *partial = lists.partial + r * room * VL;
        r += few;
        if (!forward) continue;
        if (few > 1) dots_of_rows(DOT_ROWS, vecs, row, n, here, x, x_size, partial, room, fresh);
        else dots_of_rows(1, vecs, row, n, here, x, x_size, partial, room, fresh);
    }
}

/* y = relu(w x + bias) after w and bias have got what is owed to them. `forward` 0: pay only. */
INLINE void linear_walk(const int how, const int ins, const int outs, const int biased,
                        const int relu, const int x_size, const int y_size, const int forward,
                        const int room, int n, const real *x, const Place w, const Place bias,
                        real *y, const Debt debt, Lists lists) {
    const int vecs = vectors(ins), row = vecs * VL, lanes = ins - (vecs - 1) * VL;
    const int pieces = (vecs + TILE_VECTORS - 1) / TILE_VECTORS;
    const int size = (vecs + pieces - 1) / pieces, last = vecs - (pieces - 1) * size;
    for (int o = 0; o < outs; o += TILE_ROWS) {
        const int rows = least(TILE_ROWS, outs - o);
        const Place here = shifted(w, o * row);
        for (int r = 0; r < rows && debt.n; r++) {
            int count = 0;
            for (int b = 0; b < debt.n; b++) {
                const real g = debt.dy[b * y_size + o + r];
                lists.many_offset[r * room + count] = b * x_size;
                lists.many_value[r * room + count] = g;
                count += g != 0;
            }
            lists.many_count[r] = count;
            if (biased)
                pay_one(how, shifted(bias, o + r), sum_of(lists.many_value + r * room, count),
                        debt.step);
        }
        for (int p = 0; p < pieces; p++) {
            const int at = p * size * VL;
            const Debt part = {debt.n, debt.x + at, debt.dy, debt.step};
            if (p == pieces - 1)
                linear_tile(how, last, lanes, row, x_size, rows, n, forward, pieces == 1, x + at,
                            shifted(here, at), part, room, lists);
            else if (p == 0)
                linear_tile(how, size, VL, row, x_size, rows, n, forward, 1, x, here, part, room,
                            lists);
            else
                linear_tile(how, size, VL, row, x_size, rows, n, forward, 0, x + at,
                            shifted(here, at), part, room, lists);
        }
        for (int r = 0; r < rows && forward; r += VL)
            for (int b = 0; b < n; b++) {
                V sum[LANES];
                UNROLL for (int i = 0; i < VL; i++)
                    sum[i] = load(lists.partial + ((r + i) * room + b) * VL);
                V total = lanes_sums(sum);
                if (biased) total += load(bias.w + o + r);
                if (relu) total = (V)((I)total & ~(total <= (V){0}));
                if (o + r + VL > outs) total = keep_lanes(total, outs % VL);
                save(y + b * y_size + o + r, total);
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
