/* What a client does with a gradient g at the weights w; all that is affine in g:

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
