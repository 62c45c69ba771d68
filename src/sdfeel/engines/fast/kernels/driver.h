/* The loop over clients, iterations and blocks of a batch. The generated file has, before this one:
   Work, BLOCK, SAMPLE (elements of an input), TARGET (elements of a target), target (its type),
   given (the type of an input: real, or bytes whose meaning stands in Work's `table`),
   PARAMETERS, STATE (elements of a model in our own order), OUTPUTS, start_work, unpack, pack,
   add, refresh, read_sample, forward, loss, whole_of, backward, settle, output_of,
   gradient_of. */

#include <sched.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int64_t work_bytes(void) { return (int64_t)sizeof(Work); }
EXPORT int64_t block_size(void) { return BLOCK; }
EXPORT int64_t vector_length(void) { return VL; }
EXPORT int64_t paid_at_once(void) { return AT_ONCE; }
EXPORT void start(Work *work) { start_work(work); }

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

/* In training all of a batch is drawn before its first block; `at` is where a block begins. */
#if DROPS
static void drop(Work *work, int64_t n, uint32_t seed) {
    draw_dropout(work, n, seed);
    work->drops = 1, work->at = 0;
}
#define BLOCK_AT(work, place) ((work)->at = (place))
#define DROP(work, n, seed) drop(work, n, seed)
#define KEEP_ALL(work) ((work)->drops = 0)
#else
#define BLOCK_AT(work, place) ((void)0)
#define DROP(work, n, seed) ((void)0)
#define KEEP_ALL(work) ((void)0)
#endif

/* One block forward: `chosen` numbers the samples, or they follow one another from `first`. Where
   there is an `index` they are positions in it, and the samples stand there. */
static double block_forward(Work *work, const given *inputs, const target *targets,
                            const int64_t *index, const int64_t *chosen, int64_t first, int n,
                            double whole, int *bad) {
    const target *wanted[BLOCK];
    for (int b = 0; b < n; b++) {
        const int64_t position = first + (chosen ? chosen[b] : b);
        const int64_t sample = index ? index[position] : position;
        read_sample(work, b, inputs + sample * SAMPLE);
        wanted[b] = targets ? targets + sample * TARGET : 0;
    }
    forward(work, n);
    return targets ? loss(work, n, whole, wanted, bad) : 0;
}

/* Rows of a matrix of models, one for each client; no matrix: not asked for. */
typedef struct {
    real *rows;
    const int64_t *row;
} Rows;

INLINE real *row_for(Rows rows, int64_t c) {
    return rows.rows ? rows.rows + rows.row[c] * (int64_t)PARAMETERS : 0;
}

/* What all threads of a call share; the fields are all eight bytes, as the caller writes them. */
typedef struct {
    int64_t count, *next, *stop; /* clients; the next to be taken; whether a label was bad */
    const int64_t *order, *client, *id, *first, *last;
    const given *inputs;
    const real *table;
    const target *targets;
    const int64_t *offset, *index;
    uint64_t seed;
    int64_t batch_size;
    const double *rates;
    int64_t first_rate;
    Rows start, out, anchor, shift, common, velocity, second, origin, control, sums;
    const double *weight;
    const int64_t *turn; /* how many clients add to the same sum before this one */
    int64_t *turns;      /* how many have done so */
    const int64_t *whole; /* how many make up the sum; 0: not all of them are here */
    const int64_t *empty; /* whether the sum has nothing before this call, whatever stands there */
    double weight_decay, prox, momentum, reach;
    int64_t nesterov;
    double clip, beta1, beta2, eps, decoupled;
    Rows steps; /* a number for each client: how many Adam has made */
    const uint32_t *seeds; /* of dropout, by client and iteration as `losses` */
    double *losses;
    int64_t columns;
} Task;

static void take(Work *work, const real *model) {
    unpack(model, work->model);
    refresh(work);
    work->debt.n = 0;
}

/* Arithmetic on whole models is done in their own order, where vectors are filled; what is turned
   into ours and back is only copied. `gradient` has room for such a model while there is none. */
#define EACH(i) for (int i = 0; i < PARAMETERS; i++)

#if PULL
/* prox anchor - shift, of which a part may be common to several clients. */
static void find_pull(Work *work, const real prox, const real *anchor, const real *shift,
                      const real *common) {
    real *restrict flat = work->gradient;
    if (!shift || prox != 0) EACH(i) flat[i] = prox * anchor[i];
    if (shift && prox == 0 && !common) EACH(i) flat[i] = -shift[i];
    if (shift && prox == 0 && common) EACH(i) flat[i] = -(shift[i] + common[i]);
    if (shift && prox != 0 && !common) EACH(i) flat[i] -= shift[i];
    if (shift && prox != 0 && common) EACH(i) flat[i] -= shift[i] + common[i];
    unpack(flat, work->pull);
}
#endif

static void begin(Work *work, const Task *task, int64_t c) {
    take(work, row_for(task->start, c));
#if PULL
    const Rows anchor = task->anchor.rows ? task->anchor : task->start;
    find_pull(work, (real)task->prox, row_for(anchor, c), row_for(task->shift, c),
              row_for(task->common, c));
#endif
#if MOMENTUM || ADAM
    const real *velocity = row_for(task->velocity, c);
    if (velocity) unpack(velocity, work->velocity);
    else memset(work->velocity, 0, sizeof work->velocity);
#endif
#if ADAM
    const real *second = row_for(task->second, c);
    if (second) unpack(second, work->second);
    else memset(work->second, 0, sizeof work->second);
    work->steps = task->steps.rows ? (double)task->steps.rows[task->steps.row[c]] : 0;
#endif
}

/* Sums are taken in the order of the clients, whoever is done first. */
static int wait_for_turn(const Task *task, int64_t c) {
    const int64_t *done = task->turns + task->sums.row[c];
    while (__atomic_load_n(done, __ATOMIC_ACQUIRE) != task->turn[c]) {
        if (__atomic_load_n(task->stop, __ATOMIC_RELAXED)) return 0;
        sched_yield();
    }
    return 1;
}

/* Where a client's model is added; zeros if it is the first that is. */
static real *sum_for(const Task *task, int64_t c) {
    real *sum = row_for(task->sums, c);
    if (task->empty[c] && task->turn[c] == 0) memset(sum, 0, sizeof(real) * PARAMETERS);
    return sum;
}

static void add_to_sum(const Task *task, int64_t c, const real *restrict model) {
    real *restrict sum = sum_for(task, c);
    const real weight = (real)task->weight[c];
    EACH(i) sum[i] += weight * model[i];
}

/* What a correction gains from a client ... */
static void learn(real part, const real *restrict model, const real *restrict origin,
                  real *restrict control) {
    EACH(i) control[i] += part * (model[i] - origin[i]);
}

/* ... and what all clients of a sum lose once it is their mean: by the last of them. */
static void learn_mean(Work *work, const Task *task, int64_t last) {
    const real *sum = row_for(task->sums, last), *origin = row_for(task->origin, last);
    const real reach = (real)task->reach;
    real *restrict moved = work->gradient;
    EACH(i) moved[i] = (sum[i] - origin[i]) / reach;
    for (int64_t c = 0; c < task->count; c++) {
        real *restrict control = row_for(task->control, c);
        if (task->sums.row[c] == task->sums.row[last]) EACH(i) control[i] -= moved[i];
    }
}

static void end(Work *work, const Task *task, int64_t c) {
    settle(work);
#if MOMENTUM || ADAM
    real *velocity = row_for(task->velocity, c);
    if (velocity) pack(work->velocity, velocity);
#endif
#if ADAM
    real *second = row_for(task->second, c);
    if (second) pack(work->second, second);
    if (task->steps.rows) task->steps.rows[task->steps.row[c]] = (real)work->steps;
#endif
    real *model = row_for(task->out, c), *control = row_for(task->control, c);
    const int only_added = !model && !control; /* then it is not written down before */
    if (!model) model = work->gradient;
    if (!only_added) pack(work->model, model);
    if (control) learn((real)(1 / task->reach), model, row_for(task->origin, c), control);
    if (!task->sums.rows || !wait_for_turn(task, c)) return;
    if (only_added) add(work->model, sum_for(task, c), (real)task->weight[c], model);
    else add_to_sum(task, c, model);
    const int64_t done = task->turn[c] + 1;
    __atomic_store_n(task->turns + task->sums.row[c], done, __ATOMIC_RELEASE);
    if (control && task->whole[c] == done) learn_mean(work, task, c);
}

static Step step_of(const Task *task, double rate) {
    const double beta = task->momentum, lag = task->nesterov ? rate * beta : 0;
    return (Step){(real)(MOMENTUM ? 1 : -rate), (real)rate, (real)(task->weight_decay + task->prox),
                  (real)beta, (real)lag, (real)(rate + lag)};
}

/* A step along work->gradient, which is whole. */
static void make_step(Work *work, const Task *task, Step step) {
#if CLIP
    clip_gradient(STATE, work->gradient, (real)task->clip);
#endif
#if ADAM
    const double t = work->steps += 1;
    const Moments moments = {(real)task->beta1, (real)task->beta2,
                             (real)(1 - pow(task->beta1, t)), (real)sqrt(1 - pow(task->beta2, t)),
                             (real)task->eps, (real)task->decoupled};
    adam_step(STATE, everything(work), work->gradient, work->velocity, work->second, step, moments);
#else
    (void)task;
    apply_gradient(STATE, everything(work), work->gradient, step);
#endif
}

/* The samples of a client at k, from `begin` on: how many, and their numbers. */
static int64_t draw(const Task *task, int64_t c, int64_t k, int64_t *begin, int64_t *chosen) {
    *begin = task->offset[task->client[c]];
    const int64_t samples = task->offset[task->client[c] + 1] - *begin;
    return draw_batch(task->seed, task->id[c], k, samples, task->batch_size, chosen);
}

/* One iteration of a client; its mean loss. */
static double iterate(Work *work, const Task *task, int64_t c, int64_t k, int64_t *chosen,
                      int *bad) {
    int64_t begin;
    const int64_t n = draw(task, c, k, &begin, chosen);
    const Step step = step_of(task, task->rates[k - task->first_rate]);
    const double whole = whole_of(task->targets, task->index, chosen, begin, n);
    double total = 0;
    DROP(work, n, task->seeds[c * task->columns + (k - task->first[c])]);
    if (n <= BLOCK && !GATHERED) {
        total = block_forward(work, task->inputs, task->targets, task->index, chosen, begin, (int)n,
                              whole, bad);
        if (!*bad) backward(work, 0, (int)n, step, k < task->last[c]);
    } else {
        settle(work);
        memset(work->gradient, 0, sizeof work->gradient);
        for (int64_t done = 0; done < n && !*bad; done += BLOCK) {
            const int m = (int)(n - done < BLOCK ? n - done : BLOCK);
            BLOCK_AT(work, done);
            total += block_forward(work, task->inputs, task->targets, task->index, chosen + done,
                                   begin, m, whole, bad);
            if (!*bad) backward(work, 1, m, (Step){.scale = 1}, 0);
        }
        make_step(work, task, step);
    }
    refresh(work);
    return total / whole;
}

/* Takes clients until none is left; each trains from its first to its last iteration. */
EXPORT int local_updates(Work *work, const Task *task, int64_t *chosen) {
    int bad = 0;
    work->table = task->table;
    while (!__atomic_load_n(task->stop, __ATOMIC_RELAXED)) {
        const int64_t turn = __atomic_fetch_add(task->next, 1, __ATOMIC_RELAXED);
        if (turn >= task->count) return 0;
        const int64_t c = task->order[turn];
        begin(work, task, c);
        for (int64_t k = task->first[c]; k <= task->last[c]; k++) {
            const double mean = iterate(work, task, c, k, chosen, &bad);
            if (bad) {
                __atomic_store_n(task->stop, 1, __ATOMIC_RELAXED);
                return 1;
            }
            task->losses[c * task->columns + (k - task->first[c])] = mean;
        }
        end(work, task, c);
    }
    return 0;
}

/* ---- a loss that the caller computes: clients go forward, the caller makes gradients of their
   outputs, they go back. Clients of a call have a Work each; `width` samples have room in `chosen`,
   `outputs` and `d`, one client after the other. ---- */

EXPORT void outer_begin(Work *const *works, const Task *task, const int64_t *clients,
                        int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        works[i]->table = task->table;
        begin(works[i], task, clients[i]);
    }
}

/* Step `number` of each client that has so many. */
EXPORT void outer_forward(Work *const *works, const Task *task, const int64_t *clients,
                          int64_t count, int64_t number, int64_t width, int64_t *chosen,
                          real *outputs) {
    for (int64_t i = 0; i < count; i++, chosen += width, outputs += width * OUTPUTS) {
        const int64_t c = clients[i], k = task->first[c] + number;
        if (k > task->last[c]) continue;
        int64_t begin;
        const int64_t n = draw(task, c, k, &begin, chosen);
        if (n > BLOCK) settle(works[i]);
        DROP(works[i], n, task->seeds[c * task->columns + number]);
        for (int64_t done = 0; done < n; done += BLOCK) {
            const int m = (int)(n - done < BLOCK ? n - done : BLOCK);
            BLOCK_AT(works[i], done);
            block_forward(works[i], task->inputs, 0, task->index, chosen + done, begin, m, 1, 0);
            for (int b = 0; b < m; b++)
                memcpy(outputs + (done + b) * OUTPUTS, output_of(works[i], b),
                       sizeof(real) * OUTPUTS);
        }
        for (int64_t b = 0; b < n; b++) chosen[b] += begin;
    }
}

static void take_gradients(Work *work, int m, const real *d) {
    for (int b = 0; b < m; b++)
        memcpy(gradient_of(work, b), d + b * OUTPUTS, sizeof(real) * OUTPUTS);
}

/* A batch longer than a block goes forward again: only the last block's activations are there. */
EXPORT void outer_backward(Work *const *works, const Task *task, const int64_t *clients,
                           int64_t count, int64_t number, int64_t width, const int64_t *chosen,
                           const real *d) {
    for (int64_t i = 0; i < count; i++, chosen += width, d += width * OUTPUTS) {
        Work *work = works[i];
        const int64_t c = clients[i], k = task->first[c] + number;
        if (k > task->last[c]) continue;
        const int64_t at = task->client[c], samples = task->offset[at + 1] - task->offset[at];
        const int64_t n = samples < task->batch_size ? samples : task->batch_size;
        const Step step = step_of(task, task->rates[k - task->first_rate]);
        if (n <= BLOCK && !GATHERED) {
            take_gradients(work, (int)n, d);
            backward(work, 0, (int)n, step, k < task->last[c]);
        } else if (n <= BLOCK) {
            memset(work->gradient, 0, sizeof work->gradient);
            take_gradients(work, (int)n, d);
            backward(work, 1, (int)n, (Step){.scale = 1}, 0);
            make_step(work, task, step);
        } else {
            memset(work->gradient, 0, sizeof work->gradient);
            for (int64_t done = 0; done < n; done += BLOCK) {
                const int m = (int)(n - done < BLOCK ? n - done : BLOCK);
                BLOCK_AT(work, done);
                block_forward(work, task->inputs, 0, task->index, chosen + done, 0, m, 1, 0);
                take_gradients(work, m, d + done * OUTPUTS);
                backward(work, 1, m, (Step){.scale = 1}, 0);
            }
            make_step(work, task, step);
        }
        refresh(work);
    }
}

EXPORT void outer_end(Work *const *works, const Task *task, const int64_t *clients,
                      int64_t count) {
    for (int64_t i = 0; i < count; i++) end(works[i], task, clients[i]);
}

/* The gradient of the mean loss over all samples given; `seed` is that of dropout. */
EXPORT int gradient(Work *work, const real *model, const given *inputs, const real *table,
                    const target *targets, int64_t count, uint32_t seed, double *mean,
                    real *out) {
    int bad = 0;
    work->table = table;
    double total = 0;
    const double whole = whole_of(targets, 0, 0, 0, count);
    take(work, model);
    memset(work->gradient, 0, sizeof work->gradient);
    (void)seed;
    DROP(work, count, seed);
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int m = (int)(count - done < BLOCK ? count - done : BLOCK);
        BLOCK_AT(work, done);
        total += block_forward(work, inputs, targets, 0, 0, done, m, whole, &bad);
        if (bad) return 1;
        backward(work, 1, m, (Step){.scale = 1}, 0);
    }
    *mean = total / whole;
    pack(work->gradient, out);
    return 0;
}

/* Takes blocks of samples off the counter; sums of losses by block, outputs by sample. */
EXPORT int evaluate(Work *work, const real *model, const given *inputs, const real *table,
                    const target *targets, int64_t count, int64_t *next, double *losses,
                    real *outputs) {
    int bad = 0;
    work->table = table;
    KEEP_ALL(work);
    take(work, model);
    for (;;) {
        const int64_t block = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED), done = block * BLOCK;
        if (done >= count) return 0;
        const int m = (int)(count - done < BLOCK ? count - done : BLOCK);
        losses[block] = block_forward(work, inputs, targets, 0, 0, done, m, 1, &bad);
        if (bad) return 1;
        for (int b = 0; b < m; b++)
            memcpy(outputs + (done + b) * OUTPUTS, output_of(work, b), sizeof(real) * OUTPUTS);
    }
}
