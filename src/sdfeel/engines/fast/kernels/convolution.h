/* Convolutions. Inside, weights lie twice: as (channel out, row, (column, channel in)), rows filled
   up to whole vectors with zeros, for the way back; and as (row, column, channel in, channel out),
   channels filled up, for the way forward. Both reads are then contiguous. */

INLINE int kernel_row(const int columns, const int channels) {
    return vectors(columns * channels) * VL;
}

INLINE void unpack_weights(const int outs, const int ins, const Window k, const real *flat,
                           real *w) {
    const int row = kernel_row(k.columns, ins);
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < k.rows; r++) {
            real *line = w + (o * k.rows + r) * row;
            for (int c = 0; c < k.columns; c++)
                for (int i = 0; i < ins; i++)
                    line[c * ins + i] = flat[((o * ins + i) * k.rows + r) * k.columns + c];
            for (int i = k.columns * ins; i < row; i++) line[i] = 0;
        }
}

INLINE void pack_weights(const int outs, const int ins, const Window k, const real *w,
                         real *flat) {
    const int row = kernel_row(k.columns, ins);
    for (int o = 0; o < outs; o++)
        for (int i = 0; i < ins; i++)
            for (int r = 0; r < k.rows; r++)
                for (int c = 0; c < k.columns; c++)
                    flat[((o * ins + i) * k.rows + r) * k.columns + c] =
                        w[(o * k.rows + r) * row + c * ins + i];
}

INLINE void add_weights(const int outs, const int ins, const Window k, const real *w,
                        real *restrict flat, real weight, real *restrict room) {
    pack_weights(outs, ins, k, w, room);
    for (int i = 0; i < outs * ins * k.rows * k.columns; i++) flat[i] += weight * room[i];
}

/* Channels that are left over when whole vectors are filled share a vector with those of other
   pixels: 20 channels in vectors of 8 are two and a half, for two pixels five instead of six. */
typedef struct {
    int vecs;   /* whole vectors */
    int share;  /* lanes of a pixel in a shared vector: a power of two */
    int pixels; /* in a shared vector; 0: there is none */
} Packing;

INLINE Packing packing_of(const int outs) {
    const int left = outs % VL;
    if (left == 0 || left > VL / 2) return (Packing){vectors(outs), VL, 0};
    if (left > VL / 4) return (Packing){outs / VL, VL / 2, 2};
    if (left > VL / 8) return (Packing){outs / VL, VL / 4, 4};
    return (Packing){vectors(outs), VL, 0}; /* blending eight pixels costs more than it gains */
}

/* The forward copy, the shared vector repeated for each pixel, and the bias likewise behind it. */
INLINE void turn_weights(const int outs, const int ins, const Window k, const real *w,
                         const real *bias, real *turned) {
    const Packing pack = packing_of(outs);
    const int row = kernel_row(k.columns, ins), padded = vectors(outs) * VL;
    const int width = k.columns * ins, whole = pack.pixels ? pack.vecs * VL : padded;
    real *last = turned + k.rows * width * padded;
    for (int o = 0; o < outs; o++) {
        const int copies = o < whole ? 1 : pack.pixels;
        for (int copy = 0; copy < copies; copy++) {
            const int at = o + copy * pack.share;
            for (int r = 0; r < k.rows; r++)
                for (int i = 0; i < width; i++)
                    turned[(r * width + i) * padded + at] = w[(o * k.rows + r) * row + i];
            last[at] = bias ? bias[o] : 0;
        }
    }
}

/* A tile: `pixels` neighbouring outputs x (`vecs` vectors of channels and the shared one). */
typedef struct {
    int pixels, vecs, step;
    Packing pack;
} Tile;

/* One weight times one input of pixel p; returns the input in all lanes. */
INLINE V convolve_1(const Tile t, const int p, const real *x, const V *weight, V *sum) {
    if (p >= t.pixels) return (V){0};
    V value = splat(x[p * t.step]);
    HOLD_LOW(value);
    UNROLL for (int v = 0; v < t.vecs; v++) sum[p * t.vecs + v] += value * weight[v];
    return value;
}

/* The same for more pixels; returns the inputs of all as the shared vector wants them. */
INLINE V convolve_2(const Tile t, const int p, const real *x, const V *weight, V *sum) {
    const V a = convolve_1(t, p, x, weight, sum), b = convolve_1(t, p + 1, x, weight, sum);
    return blended(a, b, t.pack.share);
}

INLINE V convolve_4(const Tile t, const int p, const real *x, const V *weight, V *sum) {
    const V a = convolve_2(t, p, x, weight, sum), b = convolve_2(t, p + 2, x, weight, sum);
    return blended(a, b, 2 * t.pack.share);
}

/* One input of every pixel of a tile times its weights. */
INLINE void convolve_tap(const Tile t, const real *x, const real *w, V *sum, V *shared) {
    const int group = t.pack.pixels ? t.pack.pixels : 1;
    V weight[4];
    HIDE(x);
    UNROLL for (int v = 0; v < t.vecs + (t.pack.pixels > 0); v++) {
        weight[v] = load(w + v * VL);
        HOLD(weight[v]);
    }
    UNROLL for (int p = 0; p < t.pixels; p += group) {
        V value;
        if (group == 1) value = convolve_1(t, p, x, weight, sum);
        if (group == 2) value = convolve_2(t, p, x, weight, sum);
        if (group == 4) value = convolve_4(t, p, x, weight, sum);
        if (t.pack.pixels) shared[p / group] += value * weight[t.vecs];
    }
}

INLINE void convolve_tile(const int pixels, const int vecs, const Packing pack, const Shape in,
                          const Window k, const int padded, const real *restrict x,
                          const real *restrict w, const real *restrict bias, real *restrict y) {
    V sum[ACCUMULATORS], shared[ACCUMULATORS];
    const int width = k.columns * in.channels, group = pack.pixels ? pack.pixels : 1;
    const Tile t = {pixels, vecs, k.step_x * in.channels, pack};
    UNROLL for (int p = 0; p < pixels; p++) {
        UNROLL for (int v = 0; v < vecs; v++) sum[p * vecs + v] = load(bias + v * VL);
        if (pack.pixels && p % group == 0) shared[p / group] = load(bias + vecs * VL);
    }
    for (int r = 0; r < k.rows; r++) {
        const real *here = x + r * row_of(in), *from = w + r * width * padded;
        if (width <= 8) UNROLL for (int i = 0; i < width; i++)
            convolve_tap(t, here + i, from + i * padded, sum, shared);
        else
            for (int i = 0; i < width; i++)
                convolve_tap(t, here + i, from + i * padded, sum, shared);
    }
    UNROLL for (int p = 0; p < pixels; p++) {
        UNROLL for (int v = 0; v < vecs; v++) save(y + p * padded + v * VL, sum[p * vecs + v]);
        if (pack.pixels)
            save(y + p * padded + vecs * VL, swapped(shared[p / group], p % group * pack.share));
    }
}

INLINE void convolve_row(const int width, const int vecs, const Packing pack, const Shape in,
                         const Window k, const int padded, const real *x, const real *w,
                         const real *bias, real *y) {
    const int group = pack.pixels ? pack.pixels : 1;
    const int room = group == 4 ? 12 : ACCUMULATORS; /* four pixels need registers of their own */
    const int most = pack.pixels ? room * group / (vecs * group + 1) : room / vecs;
    const int tiles = (width + most - 1) / most, even = (width + tiles - 1) / tiles;
    const int last = width - (tiles - 1) * even;
    for (int t = 0; t < tiles - 1; t++)
        convolve_tile(even, vecs, pack, in, k, padded, x + t * even * k.step_x * in.channels, w,
                      bias, y + t * even * padded);
    convolve_tile(last, vecs, pack, in, k, padded, x + (tiles - 1) * even * k.step_x * in.channels,
                  w, bias, y + (tiles - 1) * even * padded);
}

/* One channel of `pixels` neighbouring outputs, a vector along the patch instead of the channels:
   for the few channels left over when whole vectors are filled (9 channels would cost as 16). */
INLINE void convolve_channel(const int pixels, const Shape in, const Window k, const int padded,
                             const real *restrict x, const real *restrict w, real bias,
                             real *restrict y) {
    V sum[8];
    const int width = k.columns * in.channels, step = k.step_x * in.channels;
    const int vecs = vectors(width), lanes = width - (vecs - 1) * VL;
    UNROLL for (int p = 0; p < pixels; p++) sum[p] = (V){0};
    for (int r = 0; r < k.rows; r++)
        UNROLL for (int v = 0; v < vecs; v++) {
            V weight = load(w + (r * vecs + v) * VL);
            HOLD(weight);
            UNROLL for (int p = 0; p < pixels; p++) {
                const V value = load(x + p * step + r * row_of(in) + v * VL);
                sum[p] += weight * (v == vecs - 1 ? keep_lanes(value, lanes) : value);
            }
        }
    UNROLL for (int p = 0; p < pixels; p++) y[p * padded] = lanes_sum(sum[p]) + bias;
}

/* Whether channels left over are cheaper one by one than as one more vector of which they fill a
   part: vectors multiplied a pixel, with a tax for adding up the lanes (both as measured). */
INLINE int one_by_one(const Shape in, const Window k, const int outs) {
    const int width = k.columns * in.channels;
    return outs > VL && !packing_of(outs).pixels &&
           outs % VL * (k.rows * vectors(width) + 8) * 6 < k.rows * width * 5;
}

/* Rows `from` to `to` of one sample's outputs, channels filled up to whole vectors. */
INLINE void convolve_rows(const Shape in, const Window k, const int outs, const int width,
                          const real *x, const real *w, const real *turned, int from, int to,
                          real *y) {
    const int padded = vectors(outs) * VL, left = one_by_one(in, k, outs) ? outs % VL : 0;
    const Packing pack = packing_of(outs - left), none = {0, 0, 0};
    const int vecs = pack.vecs, patch = k.rows * kernel_row(k.columns, in.channels);
    const int group = vecs <= 3 ? vecs : vecs % 3 == 0 ? 3 : vecs % 2 == 0 ? 2 : 3;
    const int last = vecs ? (vecs - 1) % group + 1 : 0; /* vectors beside the shared one */
    const int step = k.step_x * in.channels, odd = width % 8, at = (vecs - last) * VL;
    const real *bias = turned + k.rows * k.columns * in.channels * padded;
    for (int row = from; row < to; row++) {
        const real *line = x + row * k.step_y * row_of(in);
        real *place = y + (row - from) * width * padded;
        for (int v = 0; v < vecs - last; v += group)
            convolve_row(width, group, none, in, k, padded, line, turned + v * VL, bias + v * VL,
                         place + v * VL);
        convolve_row(width, last, pack, in, k, padded, line, turned + at, bias + at, place + at);
        for (int o = outs - left; o < outs; o++) {
            const real *weights = w + o * patch;
            for (int p = 0; p + 8 <= width; p += 8)
                convolve_channel(8, in, k, padded, line + p * step, weights, bias[o],
                                 place + p * padded + o);
            if (odd)
                convolve_channel(odd, in, k, padded, line + (width - odd) * step, weights, bias[o],
                                 place + (width - odd) * padded + o);
        }
    }
}

/* Rows of a sample's outputs, of one layer, in a function of its own: what else goes on around it
   would take registers away from it. */
typedef void Convolve(const real *x, const real *w, const real *turned, int from, int to, real *y);

/* Convolution, then max-pooling where `pool.rows` is not 0, then ReLU where asked. (ReLU and
   max-pooling commute: a network that has them the other way round gives the same numbers.) */
INLINE void convolution_forward(const Shape in, const Window k, const int height, const int width,
                                const Window pool, const Shape out, const int relu,
                                Convolve *const convolve, int n, const real *x,
                                const real *w, const real *turned, real *scratch, real *y,
                                inum *index) {
    const int vecs = vectors(out.channels), padded = vecs * VL;
    const int lanes = out.channels - (vecs - 1) * VL;
    const int apart = pool.rows && pool.rows == pool.step_y && !pool.pad_y && !pool.pad_x &&
                      out.height * pool.step_y <= height;
    const int indices = out.height * out.width * padded;
    for (int b = 0; b < n; b++) {
        const real *image = x + b * in.size;
        real *to = y + b * out.size;
        if (!apart)
            convolve(image, w, turned, 0, height, scratch);
        for (int row = 0; row < out.height; row++) {
            if (pool.rows) {
                const int first = apart ? row * pool.step_y : 0;
                if (apart)
                    convolve(image, w, turned, first, first + pool.rows, scratch);
                max_pool_row(height, width, padded, pool, out, relu, scratch, first, row, to,
                             index + b * indices);
                continue;
            }
            for (int i = 0; i < width; i++)
                for (int v = 0; v < vecs; v++) {
                    V value = load(scratch + (row * width + i) * padded + v * VL);
                    if (relu) value = (V)((I)value & ~(value <= (V){0}));
                    save_lanes(to + origin_of(out) + row * row_of(out) + i * out.channels + v * VL,
                               value, v == vecs - 1 ? lanes : VL);
                }
        }
    }
}

/* The gradient of the inputs. `place` tells where in an input the patch of an output pixel begins.
   `repeats`: how many pools may share a pixel. */
INLINE void convolution_inputs(const Shape in, const Window k, const int height, const int width,
                               const int pooled, const int repeats, const Shape out, int n,
                               real *dx, const real *dy, const inum *index, const int32_t *place,
                               const real *w, Lists lists) {
    const int padded = vectors(out.channels) * VL, indices = out.height * out.width * padded;
    const int patch = k.columns * in.channels, row = kernel_row(k.columns, in.channels);
    const int room = out.channels * repeats;
    for (int b = 0; b < n; b++) {
        memset(dx + b * in.size, 0, sizeof(real) * (unsigned)in.size);
        memset(lists.many_count, 0, sizeof(int32_t) * (unsigned)(height * width));
        for (int i = 0; i < out.height; i++)
            for (int j = 0; j < out.width; j++) {
                const Bits *d = (const Bits *)dy + b * out.size + origin_of(out) + i * row_of(out) +
                                j * out.channels;
                const inum *where = index + b * indices + (i * out.width + j) * padded;
                for (int o = 0; o < out.channels; o++) {
                    const int p = pooled ? (int)where[o] : i * out.width + j;
                    const int at = p * room + lists.many_count[p];
                    lists.many_offset[at] = o * k.rows * row;
                    ((Bits *)lists.many_value)[at] = d[o];
                    lists.many_count[p] += d[o] != 0;
                }
            }
        for (int p = 0; p < height * width; p++)
            if (lists.many_count[p])
                combine(k.rows, patch, dx + b * in.size + place[p], row_of(in), w, row,
                        lists.many_offset + p * room, lists.many_value + p * room,
                        lists.many_count[p], 1, ADD);
    }
}

/* Adds scale * gradient to dw and db, for a few samples at a time: what the lists of all channels
   are made from is read again for every channel, and should still be in the cache. */
INLINE void convolution_weights(const Shape in, const Window k, const int pooled, const Shape out,
                                const int biased, int n, const real *x, const real *dy,
                                const inum *index, const int32_t *place, real *dw, real *db,
                                real scale, Lists lists) {
    const int padded = vectors(out.channels) * VL, indices = out.height * out.width * padded;
    const int patch = k.columns * in.channels, row = kernel_row(k.columns, in.channels);
    const int bytes = (int)sizeof(real) * (in.size + out.size + (pooled ? indices : 0));
    const int few = bytes < CACHE / 2 ? CACHE / bytes : 1;
    for (int first = 0; first < n; first += few)
        for (int o = 0; o < out.channels; o++) {
            int count = 0;
            for (int b = first; b < least(first + few, n); b++)
                for (int i = 0; i < out.height; i++) {
                    const Bits *d =
                        (const Bits *)dy + b * out.size + origin_of(out) + i * row_of(out) + o;
                    const inum *where = index + b * indices + i * out.width * padded + o;
                    for (int j = 0; j < out.width; j++) {
                        const inum g = d[j * out.channels];
                        const int p = pooled ? (int)where[j * padded] : i * out.width + j;
                        lists.offset[count] = b * in.size + place[p];
                        ((Bits *)lists.value)[count] = g;
                        count += g != 0;
                    }
                }
            combine(k.rows, patch, dw + o * k.rows * row, row, x, row_of(in), lists.offset,
                    lists.value, count, scale, ADD);
            if (biased) db[o] += scale * sum_of(lists.value, count);
        }
}
