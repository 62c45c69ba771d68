/* Vectors of `real` in the compiler's own extension, and the two loops that nearly all time goes to.

   Every function is forced inline and is called with literal shapes by the generated file, so the
   compiler sees constants: the loops over accumulators unroll and the accumulators stay in
   registers. `real`, `inum` (an integer of the same size), REAL_BYTES and WIDE (vectors of 64 bytes
   are worth it) are defined by the generated file.

   No lane of a vector is read or written by itself, but for the first one of a finished sum: gcc 12
   turns scalars that come out of a vector back into vectors, and with AVX-512 did so wrongly. */

#ifndef __clang__
/* GCC would keep inputs of neighbouring pixels in the registers that the sums need: 1.5x slower. */
#pragma GCC optimize("no-predictive-commoning")
#endif

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES (WIDE ? 64 : 32)
#elif defined(__x86_64__) && !defined(__AVX__)
#define VECTOR_BYTES 16
#else
#define VECTOR_BYTES 32
#endif
#define LANES (VECTOR_BYTES / REAL_BYTES)
#define VL ((int)LANES)
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

typedef real V __attribute__((vector_size(VECTOR_BYTES)));
typedef inum I __attribute__((vector_size(VECTOR_BYTES)));
typedef real VU __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef inum IU __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
typedef inum Bits __attribute__((may_alias)); /* of a real: none set is what is left out of lists */

/* Keeps a value in its register: a compiler that sees a cheap load repeats it for every use. */
#if defined(__x86_64__)
#define HOLD(v) __asm__("" : "+v"(v))
#define HOLD_LOW(v) __asm__("" : "+x"(v))
#else
#define HOLD(v) (void)0
#endif
/* Hides where a pointer points: inputs that neighbouring pixels share would be kept in registers
   that the sums need. */
#define HIDE(p) __asm__("" : "+r"(p))

/* Of 32 or 16 registers: the rest hold what is multiplied. */
#if defined(__AVX512VL__)
enum { ACCUMULATORS = 24 };
#else
enum { ACCUMULATORS = 12 };
#endif

INLINE V load(const real *p) { return *(const VU *)p; }
INLINE void save(real *p, V v) { *(VU *)p = v; }
INLINE V splat(real s) { return s - (V){0}; }
INLINE I isplat(inum s) { return s - (I){0}; }
INLINE V choose(I mask, V a, V b) { return (V)(((I)a & mask) | ((I)b & ~mask)); }
INLINE I ichoose(I mask, I a, I b) { return (a & mask) | (b & ~mask); }
INLINE int vectors(int elements) { return (elements + VL - 1) / VL; }
INLINE int least(int a, int b) { return a < b ? a : b; }

/* The numbers of all lanes, each with the bits of `d` flipped. */
#if LANES == 16
#define NUMBERS(d)                                                                                 \
    0 ^ d, 1 ^ d, 2 ^ d, 3 ^ d, 4 ^ d, 5 ^ d, 6 ^ d, 7 ^ d, 8 ^ d, 9 ^ d, 10 ^ d, 11 ^ d, 12 ^ d, \
        13 ^ d, 14 ^ d, 15 ^ d
#elif LANES == 8
#define NUMBERS(d) 0 ^ d, 1 ^ d, 2 ^ d, 3 ^ d, 4 ^ d, 5 ^ d, 6 ^ d, 7 ^ d
#elif LANES == 4
#define NUMBERS(d) 0 ^ d, 1 ^ d, 2 ^ d, 3 ^ d
#else
#define NUMBERS(d) 0 ^ d, 1 ^ d
#endif

/* Lane i is lane i ^ d of v. */
#ifdef __clang__
#define SWAPPED(v, d) __builtin_shufflevector(v, v, NUMBERS(d))
#else
#define SWAPPED(v, d) __builtin_shuffle(v, (I){NUMBERS(d)})
#endif

/* Lane i is that of b where i has the bit d, else that of a. */
#define PICK(i, d) (i & d ? i + LANES : i)
#if LANES == 16
#define PICKS(d)                                                                                   \
    PICK(0, d), PICK(1, d), PICK(2, d), PICK(3, d), PICK(4, d), PICK(5, d), PICK(6, d),            \
        PICK(7, d), PICK(8, d), PICK(9, d), PICK(10, d), PICK(11, d), PICK(12, d), PICK(13, d),    \
        PICK(14, d), PICK(15, d)
#elif LANES == 8
#define PICKS(d)                                                                                   \
    PICK(0, d), PICK(1, d), PICK(2, d), PICK(3, d), PICK(4, d), PICK(5, d), PICK(6, d), PICK(7, d)
#elif LANES == 4
#define PICKS(d) PICK(0, d), PICK(1, d), PICK(2, d), PICK(3, d)
#else
#define PICKS(d) PICK(0, d), PICK(1, d)
#endif
#ifdef __clang__
#define BLENDED(a, b, d) __builtin_shufflevector(a, b, PICKS(d))
#elif VECTOR_BYTES == 32 && defined(__AVX__)
/* GCC would take a shuffle, which occupies a unit that multiplies. */
#if REAL_BYTES == 4
#define BLENDED(a, b, d) __builtin_ia32_blendps256(a, b, d == 1 ? 0xAA : d == 2 ? 0xCC : 0xF0)
#else
#define BLENDED(a, b, d) __builtin_ia32_blendpd256(a, b, d == 1 ? 0xA : 0xC)
#endif
#else
#define BLENDED(a, b, d) __builtin_shuffle(a, b, (I){PICKS(d)})
#endif

INLINE V swapped(V v, const int d) {
    if (d & 1) v = SWAPPED(v, 1);
#if LANES >= 4
    if (d & 2) v = SWAPPED(v, 2);
#endif
#if LANES >= 8
    if (d & 4) v = SWAPPED(v, 4);
#endif
#if LANES >= 16
    if (d & 8) v = SWAPPED(v, 8);
#endif
    return v;
}

INLINE V blended(V a, V b, const int d) {
    if (d == 1) return BLENDED(a, b, 1);
    if (d == 2) return BLENDED(a, b, 2);
    if (d == 4) return BLENDED(a, b, 4);
    return BLENDED(a, b, 8);
}

/* One halving of the sums over the lanes of two vectors: those of a where i has not the bit d. */
INLINE V halved(V a, V b, const int d) {
    return blended(a, b, d) + swapped(blended(b, a, d), d);
}

/* Lane i is the sum over the lanes of vector i, each as `lanes_sum` has it. */
INLINE V lanes_sums(V *v) {
    UNROLL for (int d = VL / 2; d; d /= 2)
        UNROLL for (int i = 0; i < d; i++) v[i] = halved(v[i], v[i + d], d);
    return v[0];
}

INLINE real lanes_sum(V v) {
#if LANES == 16
    v += SWAPPED(v, 8);
#endif
#if LANES >= 8
    v += SWAPPED(v, 4);
#endif
#if LANES >= 4
    v += SWAPPED(v, 2);
#endif
    v += SWAPPED(v, 1);
    return v[0];
}

/* The first `lanes` elements only: what follows in memory belongs to somebody else. */
INLINE void save_lanes(real *p, V v, const int lanes) {
    if (lanes == VL) save(p, v);
    else memcpy(p, &v, sizeof(real) * (unsigned)lanes);
}

INLINE V keep_lanes(V v, const int lanes) {
    if (lanes == VL) return v;
    return (V)((I)v & ((I){NUMBERS(0)} < isplat(lanes)));
}

INLINE real sum_of(const real *values, int count) {
    V a = {0}, b = {0};
    real rest = 0;
    int i = 0;
    for (; i + 2 * VL <= count; i += 2 * VL) a += load(values + i), b += load(values + i + VL);
    for (; i < count; i++) rest += values[i];
    return lanes_sum(a + b) + rest;
}

/* ReLU's backward, as autograd has it: nothing passes where the output is 0, NaN passes. */
INLINE void mask_by_output(int count, const real *out, real *d) {
    int i = 0;
    for (; i + VL <= count; i += VL) save(d + i, (V)((I)load(d + i) & ~(load(out + i) <= (V){0})));
    for (; i < count; i++) d[i] = out[i] <= 0 ? 0 : d[i];
}

enum { ADD, SET };

/* to[r][v] += scale * sum over e of value[e] * from[offset[e] + r * from_row + v]

   for a block of rows x vecs accumulators. This one loop is the gradient of the weights (from: the
   layer's inputs, an entry: a place with a non-zero gradient) and the gradient of the inputs (from:
   the weights, an entry: a channel with a non-zero gradient). Entries are lists because most
   gradients are zero: a 2x2 max-pool passes one in four, ReLU about half of those. */
INLINE void combine_block(const int rows, const int vecs, const int lanes, real *restrict to,
                          const int to_row, const real *restrict from, const int from_row,
                          const int32_t *restrict offset, const real *restrict value, int count,
                          real scale, const int how) {
    const int size = rows * vecs, chains = 2 * size <= ACCUMULATORS ? 2 : 1; /* hides latency */
    V sum[ACCUMULATORS];
    UNROLL for (int i = 0; i < chains * size; i++) sum[i] = (V){0};
    int e = 0;
    for (; e + chains <= count; e += chains) {
        UNROLL for (int c = 0; c < chains; c++) {
            const V g = splat(value[e + c]);
            const real *a = from + offset[e + c];
            UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++)
                sum[c * size + r * vecs + v] += g * load(a + r * from_row + v * VL);
        }
    }
    for (; chains > 1 && e < count; e++) {
        const V g = splat(value[e]);
        const real *a = from + offset[e];
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++)
            sum[r * vecs + v] += g * load(a + r * from_row + v * VL);
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vecs; v++) {
        real *place = to + r * to_row + v * VL;
        V total = sum[r * vecs + v];
        UNROLL for (int c = 1; c < chains; c++) total += sum[c * size + r * vecs + v];
        if (v == vecs - 1) total = keep_lanes(total, lanes);
        save(place, how == SET ? total : load(place) + scale * total);
    }
}

/* The same for any number of rows of any width, cut into blocks that fit the registers. */
INLINE void combine(const int rows, const int width, real *restrict to, const int to_row,
                    const real *restrict from, const int from_row, const int32_t *offset,
                    const real *value, int count, real scale, const int how) {
    const int vecs = vectors(width), lanes = width - (vecs - 1) * VL;
    if (vecs <= ACCUMULATORS) {
        const int group = least(ACCUMULATORS / vecs, rows), rest = rows % group;
        for (int r = 0; r + group <= rows; r += group)
            combine_block(group, vecs, lanes, to + r * to_row, to_row, from + r * from_row,
                          from_row, offset, value, count, scale, how);
        if (rest)
            combine_block(rest, vecs, lanes, to + (rows - rest) * to_row, to_row,
                          from + (rows - rest) * from_row, from_row, offset, value, count, scale,
                          how);
        return;
    }
    const int pieces = (vecs + ACCUMULATORS - 1) / ACCUMULATORS;
    const int size = (vecs + pieces - 1) / pieces, last = vecs - (pieces - 1) * size;
    for (int r = 0; r < rows; r++) {
        for (int p = 0; p < pieces - 1; p++)
            combine_block(1, size, VL, to + r * to_row + p * size * VL, 0,
                          from + r * from_row + p * size * VL, 0, offset, value, count, scale, how);
        combine_block(1, last, lanes, to + r * to_row + (pieces - 1) * size * VL, 0,
                      from + r * from_row + (pieces - 1) * size * VL, 0, offset, value, count,
                      scale, how);
    }
}
