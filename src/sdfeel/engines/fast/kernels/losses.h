/* Losses: the sum over the block of each sample's loss; d gets the gradient of the mean over
   `whole` samples. A label out of range gives -1 in `bad`. */

INLINE double cross_entropy(const int classes, const int size, int n, double whole, const real *y,
                            real *d, const int64_t *const *labels, int *bad) {
    double total = 0;
    for (int b = 0; b < n; b++) {
        const real *logit = y + b * size;
        const int64_t label = *labels[b];
        if (label < 0 || label >= classes) {
            *bad = 1;
            return NAN;
        }
        real top = logit[0], sum = 0;
        for (int c = 1; c < classes; c++) top = logit[c] > top ? logit[c] : top;
        for (int c = 0; c < classes; c++) sum += d[b * size + c] = EXP(logit[c] - top);
        const real scale = (real)(1 / ((double)sum * whole));
        for (int c = 0; c < classes; c++) d[b * size + c] *= scale;
        d[b * size + label] -= (real)(1 / whole);
        total += log((double)sum) - ((double)logit[label] - (double)top);
    }
    return total;
}

/* With weights of classes, smoothed labels and a label that is left out: of a sample with label l
   -(sum over c of s_c log p_c), s_c = smoothing / classes w_c, and (1 - smoothing) w_l more for l.
   No weights: 1. `whole` is the sum of w_l over the batch. */
INLINE double weighted_cross_entropy(const int classes, const int size, const double smoothing,
                                     const int64_t ignore, const int has_ignored,
                                     const double *weights, int n, double whole, const real *y,
                                     real *d, const int64_t *const *labels, int *bad) {
    double total = 0;
    for (int b = 0; b < n; b++) {
        const real *logit = y + b * size;
        const int64_t label = *labels[b];
        real *to = d + b * size;
        if (has_ignored && label == ignore) {
            for (int c = 0; c < classes; c++) to[c] = 0;
            continue;
        }
        if (label < 0 || label >= classes) {
            *bad = 1;
            return NAN;
        }
        real top = logit[0], sum = 0;
        for (int c = 1; c < classes; c++) top = logit[c] > top ? logit[c] : top;
        for (int c = 0; c < classes; c++) sum += to[c] = EXP(logit[c] - top);
        const double part = smoothing / classes, log_sum = log((double)sum) + (double)top;
        const double own = (1 - smoothing) * (weights ? weights[label] : 1);
        double mass = own;
        for (int c = 0; c < classes && smoothing > 0; c++) {
            const double share = part * (weights ? weights[c] : 1);
            mass += share;
            total += share * (log_sum - (double)logit[c]);
        }
        total += own * (log_sum - (double)logit[label]);
        const real scale = (real)(mass / ((double)sum * whole));
        for (int c = 0; c < classes; c++) {
            to[c] *= scale;
            if (smoothing > 0) to[c] -= (real)(part * (weights ? weights[c] : 1) / whole);
        }
        to[label] -= (real)(own / whole);
    }
    return total;
}

INLINE double squared_error(const int outs, const int size, int n, double whole, const real *y,
                            real *d, const real *const *targets) {
    double total = 0;
    const real scale = (real)(2 / (whole * outs));
    for (int b = 0; b < n; b++)
        for (int o = 0; o < outs; o++) {
            const real error = y[b * size + o] - targets[b][o];
            d[b * size + o] = scale * error;
            total += (double)error * (double)error / outs;
        }
    return total;
}

/* With p the weight of a positive target: (1 - t) y + (1 + (p - 1) t) log(1 + exp(-y)), each output
   times its scale. */
INLINE double binary_cross_entropy(const int outs, const int size, const double *weights,
                                   const double *scales, int n, double whole, const real *y,
                                   real *d, const real *const *targets) {
    double total = 0;
    for (int b = 0; b < n; b++)
        for (int o = 0; o < outs; o++) {
            const real x = y[b * size + o], t = targets[b][o];
            const real small = EXP(x < 0 ? x : -x), one = (real)1; /* exp(-|x|) */
            const real more = weights ? one + ((real)weights[o] - one) * t : one;
            const real below = (x < 0 ? one : small) / (one + small); /* 1 / (1 + exp(x)) */
            const double scale = (scales ? scales[o] : 1) / outs;
            const real log_term = LOG1P(small) + (x < 0 ? -x : 0);
            total += scale * (double)((one - t) * x + more * log_term);
            d[b * size + o] = (real)(scale / whole) * ((one - t) - more * below);
        }
    return total;
}

enum { SMOOTH_L1, HUBER, L1 };

/* Straight lines with a parabola of the width beta between them; huber is smooth-l1 times beta. */
INLINE double absolute_error(const int kind, const real beta, const int outs, const int size, int n,
                             double whole, const real *y, real *d, const real *const *targets) {
    double total = 0;
    const real scale = (real)(1 / (whole * outs)), line = kind == HUBER ? beta : (real)1;
    for (int b = 0; b < n; b++)
        for (int o = 0; o < outs; o++) {
            const real e = y[b * size + o] - targets[b][o], far = e < 0 ? -e : e;
            const real sign = e > 0 ? (real)1 : e < 0 ? (real)-1 : e; /* NaN stays NaN */
            const int near = kind != L1 && far < beta;
            const real half = (real)0.5, curve = kind == HUBER ? (real)1 : 1 / beta;
            const real loss = near ? half * curve * e * e
                                   : line * (kind == L1 ? far : far - half * beta);
            d[b * size + o] = scale * (near ? curve * e : line * sign);
            total += (double)loss / outs;
        }
    return total;
}
