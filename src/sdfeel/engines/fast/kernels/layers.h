/* Layers. Activations lie as (sample, row, column, channel), each sample `size` elements apart,
   with a frame of zeros as wide as the padding of the convolution that reads them. */

typedef struct {
    int height, width, channels; /* without the frame */
    int pad_y, pad_x;
    int size; /* from one sample to the next: a multiple of VL, what is left over is zero */
} Shape;

typedef struct {
    int rows, columns, step_y, step_x, pad_y, pad_x;
} Window;

INLINE int row_of(Shape s) { return (s.width + 2 * s.pad_x) * s.channels; }
INLINE int origin_of(Shape s) { return s.pad_y * row_of(s) + s.pad_x * s.channels; }

/* What the layers of one network share while they work, largest need first come. */
typedef struct {
    int32_t *offset; /* a list: places or channels ... */
    real *value;     /* ... and their gradients */
    int32_t *many_offset, *many_count; /* a list for every pixel or sample */
    real *many_value;
    real *partial; /* sums of a tile of a linear layer, still in lanes */
} Lists;

enum { CACHE = 24576 }; /* bytes that stay in the first cache */

/* ---- input: real numbers, or bytes (TABLES > 0) and what each of them stands for, in one table for
   all channels or in one for each ---- */

#if TABLES
INLINE void read_flat(const int length, const Shape to, const given *from, const real *table,
                      real *x) {
    const int plane = length / TABLES;
    (void)to;
    for (int c = 0; c < TABLES; c++)
        for (int i = c * plane; i < (c + 1) * plane; i++) x[i] = table[256 * c + from[i]];
}

INLINE void read_image(const Shape to, const given *from, const real *table, real *x) {
    const int row = row_of(to);
    for (int y = 0; y < to.height; y++) {
        real *line = x + origin_of(to) + y * row;
        const given *pixel = from + y * to.width;
        for (int i = 0; i < to.width; i++)
            UNROLL for (int c = 0; c < to.channels; c++)
                line[i * to.channels + c] =
                    table[256 * (TABLES > 1 ? c : 0) + pixel[c * to.height * to.width + i]];
    }
}
#else
INLINE void read_flat(const int length, const Shape to, const given *from, const real *table,
                      real *x) {
    (void)to, (void)table;
    memcpy(x, from, sizeof(real) * (unsigned)length);
}

INLINE void read_image(const Shape to, const given *from, const real *table, real *x) {
    (void)table;
    const int row = row_of(to);
    for (int y = 0; y < to.height; y++) {
        real *line = x + origin_of(to) + y * row;
        if (to.channels == 1) memcpy(line, from + y * to.width, sizeof(real) * (unsigned)to.width);
        else
            for (int c = 0; c < to.channels; c++)
                for (int i = 0; i < to.width; i++)
                    line[i * to.channels + c] = from[(c * to.height + y) * to.width + i];
    }
}
#endif

/* ---- max pooling ---- */

/* One row of outputs. As PyTorch: the first maximum wins and NaN is larger than everything. The
   pixel of the maximum goes to `index` for the way back. `image` holds rows `first_row` on, with
   `pixel` elements from one pixel to the next. */
INLINE void max_pool_row(const int height, const int width, const int pixel, const Window k,
                         const Shape out, const int relu, const real *image, int first_row, int py,
                         real *y, inum *index) {
    const int vecs = vectors(out.channels), lanes = out.channels - (vecs - 1) * VL;
    const int framed = k.pad_y || k.pad_x || (out.height - 1) * k.step_y + k.rows > height ||
                       (out.width - 1) * k.step_x + k.columns > width;
    const int top = py * k.step_y - k.pad_y;
    for (int px = 0; px < out.width; px++) {
        const int left = px * k.step_x - k.pad_x;
        const int y0 = framed && top < 0 ? -top : 0, x0 = framed && left < 0 ? -left : 0;
        const int y1 = framed ? least(k.rows, height - top) : k.rows;
        const int x1 = framed ? least(k.columns, width - left) : k.columns;
        real *place = y + origin_of(out) + py * row_of(out) + px * out.channels;
        inum *where = index + (py * out.width + px) * vecs * VL;
        for (int v = 0; v < vecs; v++) {
            const int start = (top + y0) * width + left + x0;
            V best = load(image + (start - first_row * width) * pixel + v * VL);
            I at = isplat(start);
            for (int a = y0; a < y1; a++)
                for (int b = x0; b < x1; b++) {
                    if (a == y0 && b == x0) continue;
                    const int p = (top + a) * width + left + b;
                    const V new = load(image + (p - first_row * width) * pixel + v * VL);
                    const I take = (new > best) | (new != new);
                    best = choose(take, new, best);
                    at = ichoose(take, isplat(p), at);
                }
            if (relu) best = (V)((I)best & ~(best <= (V){0}));
            *(IU *)(where + v * VL) = at;
            save_lanes(place + v * VL, best, v == vecs - 1 ? lanes : VL);
        }
    }
}

INLINE void max_pool_forward(const Shape in, const Window k, const Shape out, int n, const real *x,
                             real *y, inum *index) {
    const int indices = out.height * out.width * vectors(out.channels) * VL;
    for (int b = 0; b < n; b++)
        for (int py = 0; py < out.height; py++)
            max_pool_row(in.height, in.width, in.channels, k, out, 0, x + b * in.size, 0, py,
                         y + b * out.size, index + b * indices);
}

INLINE void max_pool_backward(const Shape in, const Shape out, int n, real *dx, const real *dy,
                              const inum *index) {
    const int padded = vectors(out.channels) * VL, indices = out.height * out.width * padded;
    for (int b = 0; b < n; b++) {
        memset(dx + b * in.size, 0, sizeof(real) * (unsigned)in.size);
        for (int py = 0; py < out.height; py++)
            for (int px = 0; px < out.width; px++) {
                const real *d =
                    dy + b * out.size + origin_of(out) + py * row_of(out) + px * out.channels;
                const inum *where = index + b * indices + (py * out.width + px) * padded;
                for (int c = 0; c < out.channels; c++)
                    dx[b * in.size + where[c] * in.channels + c] += d[c];
            }
    }
}

/* ---- average pooling (padding counts as zeros, PyTorch's default) ---- */

INLINE void average_pool(const Shape in, const Window k, const Shape out, int n, real *x, real *y,
                         const int back) {
    const real share = (real)1 / (real)(k.rows * k.columns);
    for (int b = 0; b < n; b++) {
        if (back) memset(x + b * in.size, 0, sizeof(real) * (unsigned)in.size);
        for (int py = 0; py < out.height; py++)
            for (int px = 0; px < out.width; px++) {
                const int top = py * k.step_y - k.pad_y, left = px * k.step_x - k.pad_x;
                real *place =
                    y + b * out.size + origin_of(out) + py * row_of(out) + px * out.channels;
                if (!back) memset(place, 0, sizeof(real) * (unsigned)out.channels);
                for (int i = top < 0 ? 0 : top; i < least(in.height, top + k.rows); i++)
                    for (int j = left < 0 ? 0 : left; j < least(in.width, left + k.columns); j++) {
                        real *pixel = x + b * in.size + (i * in.width + j) * in.channels;
                        for (int c = 0; c < in.channels; c++) {
                            if (back) pixel[c] += share * place[c];
                            else place[c] += share * pixel[c];
                        }
                    }
            }
    }
}
