/* Dropout. What is kept is drawn as torch draws it on a processor, so that every engine keeps the
   same: the Mersenne Twister begins anew at (seed, client, k), and each dropout layer in turn takes
   a number of 53 bits for each element of the whole batch, in torch's order. */

typedef struct {
    uint32_t word[624];
    int at;
} Twister;

static void seed_twister(Twister *t, uint32_t seed) {
    t->word[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        t->word[i] = 1812433253u * (t->word[i - 1] ^ (t->word[i - 1] >> 30)) + i;
    t->at = 624;
}

INLINE uint32_t twisted(uint32_t high, uint32_t low, uint32_t far) {
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return far ^ (y >> 1) ^ (-(low & 1u) & 0x9908b0dfu);
}

static uint32_t next_word(Twister *t) {
    if (t->at == 624) {
        uint32_t *w = t->word;
        for (int i = 0; i < 227; i++) w[i] = twisted(w[i], w[i + 1], w[i + 397]);
        for (int i = 227; i < 623; i++) w[i] = twisted(w[i], w[i + 1], w[i - 227]);
        w[623] = twisted(w[623], w[0], w[396]);
        t->at = 0;
    }
    uint32_t y = t->word[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

INLINE unsigned char keeps(Twister *t, const double part) {
    const uint64_t high = next_word(t), low = next_word(t);
    return (double)(((high << 32) | low) & 0x1fffffffffffffull) < part * 9007199254740992.0;
}

/* What `n` samples keep: torch's order is channel, row, column; ours has the channel last. */
INLINE void draw_kept(const Shape s, const int of_channels, const double part, int64_t n,
                      Twister *t, unsigned char *kept) {
    const int pixels = s.height * s.width;
    for (int64_t b = 0; b < n; b++, kept += pixels * s.channels)
        for (int c = 0; c < s.channels; c++) {
            const unsigned char whole = of_channels ? keeps(t, part) : 0;
            for (int p = 0; p < pixels; p++)
                kept[p * s.channels + c] = of_channels ? whole : keeps(t, part);
        }
}

/* Forward from `in` to `out`, backward from `out` to `in`; without draws nothing is dropped. */
INLINE void dropout(const Shape in, const Shape out, const real scale, int n, const real *x,
                    real *y, const unsigned char *kept) {
    const int width = in.width * in.channels;
    for (int b = 0; b < n; b++)
        for (int r = 0; r < in.height; r++) {
            const real *from = x + b * in.size + origin_of(in) + r * row_of(in);
            real *to = y + b * out.size + origin_of(out) + r * row_of(out);
            const unsigned char *row = kept ? kept + (b * in.height + r) * width : 0;
            for (int i = 0; i < width; i++) to[i] = row ? from[i] * (row[i] ? scale : 0) : from[i];
        }
}
