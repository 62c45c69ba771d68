/* What a client does with a gradient g at the weights w. First all that is affine in g:

       g' = g + weight_decay w + prox (w - anchor) + shift
       v <- momentum v + g';   w <- w - rate v      (nesterov: w - rate (g' + momentum v))

   and w <- w - rate g' without momentum. With decay = weight_decay + prox and pull = prox anchor -
   shift this is g' = g + decay w - pull. DECAY, PULL and MOMENTUM (0 or 1) say which terms the file
   was written for; without any of them all of this compiles to one addition of -rate g to w.

   With momentum a gradient is added to v. Nesterov's step is one in v before and v' after, as
   g' + momentum v' = (1 + momentum) v' - momentum v. */

typedef struct {
    real scale; /* by which gradients are added: -rate to weights, 1 to a velocity */
    real rate, decay, momentum;
    real lag, lead; /* w <- w + lag v - lead v' */
} Step;

/* What is done with a gradient only once it is whole: it is summed up first, apart. */
#define GATHERED (CLIP || ADAM)

/* A piece of the weights and what belongs to it. */
typedef struct {
    real *w, *v;
    const real *pull;
} Place;

INLINE Place shifted(Place p, int by) {
    return (Place){p.w + by, MOMENTUM ? p.v + by : p.v, PULL ? p.pull + by : p.pull};
}

/* What gradients are added to: a sum of gradients knows no rule. */
enum { ADD_ONLY, BY_RULE };
#define RULED (DECAY || PULL || MOMENTUM)

INLINE V opened(const int how, const Place p, int i, const Step s) {
    V sum = load(p.w + i);
    if (how == ADD_ONLY) return sum;
    if (MOMENTUM) {
        const V w = sum;
        sum = s.momentum * load(p.v + i);
        if (DECAY) sum += s.decay * w;
        if (PULL) sum -= load(p.pull + i);
    } else {
        if (DECAY) sum -= s.rate * s.decay * sum;
        if (PULL) sum += s.rate * load(p.pull + i);
    }
    return sum;
}

INLINE void finish(const int how, const Place p, int i, V sum, const Step s) {
    if (how == BY_RULE && MOMENTUM) {
        const V w = load(p.w + i) + s.lag * load(p.v + i) - s.lead * sum;
        save(p.v + i, sum);
        sum = w;
    }
    save(p.w + i, sum);
}

/* The same for one weight and the sum of its gradients. */
INLINE void pay_one(const int how, const Place p, real gradient, const Step s) {
    if (how == BY_RULE && MOMENTUM) {
        real v = s.momentum * *p.v + gradient;
        if (DECAY) v += s.decay * *p.w;
        if (PULL) v -= *p.pull;
        *p.w += s.lag * *p.v - s.lead * v;
        *p.v = v;
        return;
    }
    if (how == BY_RULE && DECAY) *p.w -= s.rate * s.decay * *p.w;
    if (how == BY_RULE && PULL) *p.w += s.rate * *p.pull;
    *p.w += s.scale * gradient;
}

/* In two halves, for gradients that come in between; `count` is a multiple of VL. */
static void before_gradient(int count, Place p, Step s) {
    if (!RULED) return;
    for (int i = 0; i < count; i += VL) {
        const V sum = opened(BY_RULE, p, i, s);
        if (MOMENTUM) {
            save(p.w + i, load(p.w + i) + s.lag * load(p.v + i));
            save(p.v + i, sum);
        } else save(p.w + i, sum);
    }
}

static void after_gradient(int count, Place p, Step s) {
    if (MOMENTUM)
        for (int i = 0; i < count; i += VL)
            save(p.w + i, load(p.w + i) - s.lead * load(p.v + i));
}

/* All at once, with gradients that were summed up elsewhere. */
static void apply_gradient(int count, Place p, const real *gradient, Step s) {
    for (int i = 0; i < count; i += VL)
        finish(BY_RULE, p, i, opened(BY_RULE, p, i, s) + s.scale * load(gradient + i), s);
}

#if CLIP
/* Scales a gradient down to a norm, as `torch.nn.utils.clip_grad_norm_`; NaN stays NaN. */
static void clip_gradient(int count, real *restrict gradient, real most) {
    V total = {0};
    for (int i = 0; i < count; i += VL) total += load(gradient + i) * load(gradient + i);
    real factor = most / (SQRT(lanes_sum(total)) + (real)1e-6);
    if (factor > 1) factor = 1;
    for (int i = 0; i < count; i += VL) save(gradient + i, factor * load(gradient + i));
}
#endif

#if ADAM
typedef struct {
    real keep, keep_squares; /* beta1, beta2 */
    real size, root;         /* 1 - beta1^t and the root of 1 - beta2^t */
    real eps, decoupled;
} Moments;

/* m and q are the means of gradients and of their squares; elements that no parameter has stay 0. */
static void adam_step(int count, Place p, const real *restrict gradient, real *restrict m,
                      real *restrict q, Step s, Moments a) {
    real *restrict w = p.w;
    const real *restrict pull = p.pull;
    (void)pull;
    for (int i = 0; i < count; i++) {
        real g = gradient[i];
#if DECAY
        g += s.decay * w[i];
#endif
#if PULL
        g -= pull[i];
#endif
        m[i] += (1 - a.keep) * (g - m[i]);
        q[i] = a.keep_squares * q[i] + (1 - a.keep_squares) * g * g;
        const real moved = m[i] / a.size / (SQRT(q[i]) / a.root + a.eps);
        w[i] -= s.rate * (moved + a.decoupled * w[i]);
    }
}
#endif
