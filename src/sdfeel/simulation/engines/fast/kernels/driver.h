/* The loop over clients, iterations and blocks of a batch. The generated file has, before this one:
   Work, BLOCK, SAMPLE (elements of an input), TARGET (elements of a target), target (its type),
   PARAMETERS, OUTPUTS, start_work, unpack, pack, refresh, read_sample, forward, loss, backward,
   settle, clear_gradient, apply_gradient, pack_gradient, output_of. */

#define EXPORT __attribute__((visibility("default")))

/* Philox4x32-10: word t of (seed, client, k), the same numbers as the reference in numpy. */
INLINE void philox(uint32_t block, uint32_t client, uint32_t k, uint64_t seed, uint32_t out[4]) {
    uint32_t c0 = block, c1 = client, c2 = k, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The batch of a client at k: Floyd's draw without replacement, or all data if there is no more. */
EXPORT int64_t draw_batch(uint64_t seed, int64_t client, int64_t k, int64_t samples,
                          int64_t batch_size, int64_t *chosen) {
    if (samples <= batch_size) {
        for (int64_t t = 0; t < samples; t++) chosen[t] = t;
        return samples;
    }
    uint32_t word[4] = {0};
    for (int64_t t = 0; t < batch_size; t++) {
        if (t % 4 == 0) philox((uint32_t)(t / 4), (uint32_t)client, (uint32_t)k, seed, word);
        const int64_t top = samples - batch_size + t;
        const int64_t drawn = (int64_t)(((uint64_t)word[t % 4] * (uint64_t)(top + 1)) >> 32);
        int taken = 0;
        for (int64_t u = 0; u < t; u++) taken |= chosen[u] == drawn;
        chosen[t] = taken ? top : drawn;
    }
    return batch_size;
}

EXPORT int64_t work_bytes(void) { return (int64_t)sizeof(Work); }
EXPORT int64_t block_size(void) { return BLOCK; }
EXPORT int64_t vector_length(void) { return VL; }
EXPORT void start(Work *work) { start_work(work); }

/* One block forward: `chosen` numbers the samples, or they follow one another from `first`. */
static double block_forward(Work *work, real *model, const real *inputs, const target *targets,
                            const int64_t *chosen, int64_t first, int n, double whole, int *bad) {
    const target *wanted[BLOCK];
    for (int b = 0; b < n; b++) {
        const int64_t sample = first + (chosen ? chosen[b] : b);
        read_sample(work, b, inputs + sample * SAMPLE);
        wanted[b] = targets ? targets + sample * TARGET : 0;
    }
    forward(work, model, n);
    return targets ? loss(work, n, whole, wanted, bad) : 0;
}

/* Takes clients off the counter `next` until none is left; each trains from first to last. */
EXPORT int local_updates(Work *work, real *models, const int64_t *clients, const int64_t *ids,
                         int64_t count, int64_t *next, const real *inputs, const target *targets,
                         const int64_t *offsets, uint64_t seed, int64_t first, int64_t last,
                         int64_t batch_size, double rate, int64_t *chosen, double *losses) {
    int bad = 0;
    for (;;) {
        const int64_t c = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
        if (c >= count) return 0;
        real *model = models + clients[c] * (int64_t)PARAMETERS;
        const int64_t begin = offsets[clients[c]], samples = offsets[clients[c] + 1] - begin;
        unpack(work, model);
        refresh(work, model);
        for (int64_t k = first; k <= last; k++) {
            const int64_t n = draw_batch(seed, ids[c], k, samples, batch_size, chosen);
            double total = 0;
            if (n <= BLOCK) {
                total = block_forward(work, model, inputs, targets, chosen, begin, (int)n,
                                      (double)n, &bad);
                if (!bad) backward(work, model, model, 0, (int)n, (real)-rate, k < last);
            } else {
                settle(work, model);
                clear_gradient(work);
                for (int64_t done = 0; done < n && !bad; done += BLOCK) {
                    const int m = (int)(n - done < BLOCK ? n - done : BLOCK);
                    total += block_forward(work, model, inputs, targets, chosen + done, begin, m,
                                           (double)n, &bad);
                    if (!bad) backward(work, model, work->gradient, 1, m, 1, 0);
                }
                apply_gradient(work, model, (real)-rate);
            }
            if (bad) return 1;
            refresh(work, model);
            losses[c * (last - first + 1) + (k - first)] = total / (double)n;
        }
        settle(work, model);
        pack(work, model);
    }
}

/* The gradient of the mean loss over all samples given. */
EXPORT int gradient(Work *work, real *model, const real *inputs, const target *targets,
                    int64_t count, double *mean, real *out) {
    int bad = 0;
    double total = 0;
    unpack(work, model);
    refresh(work, model);
    clear_gradient(work);
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int m = (int)(count - done < BLOCK ? count - done : BLOCK);
        total += block_forward(work, model, inputs, targets, 0, done, m, (double)count, &bad);
        if (bad) return 1;
        backward(work, model, work->gradient, 1, m, 1, 0);
    }
    *mean = total / (double)count;
    pack_gradient(work, out);
    return 0;
}

/* Takes blocks of samples off the counter; sums of losses by block, outputs by sample. */
EXPORT int evaluate(Work *work, real *model, const real *inputs, const target *targets,
                    int64_t count, int64_t *next, double *losses, real *outputs) {
    int bad = 0;
    unpack(work, model);
    refresh(work, model);
    for (;;) {
        const int64_t block = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED), done = block * BLOCK;
        if (done >= count) return 0;
        const int m = (int)(count - done < BLOCK ? count - done : BLOCK);
        losses[block] = block_forward(work, model, inputs, targets, 0, done, m, 1, &bad);
        if (bad) return 1;
        for (int b = 0; b < m; b++)
            memcpy(outputs + (done + b) * OUTPUTS, output_of(work, b), sizeof(real) * OUTPUTS);
    }
}

