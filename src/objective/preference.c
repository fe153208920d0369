/* preference.c - losses over preferences: a pair (or for KTO one completion) gives a loss and its derivative by each log-prob.
 *
 * s is the sum of the log-probs of a completion, its end token included, n its number of tokens, u = s − reference; w is the chosen
 * completion, l the rejected one, σ the logistic function, and h = β(u_w − u_l). The formula and the source of each loss stand above its
 * function, and in LOSSES for users. */
#include <string.h>

#include "check.h"
#include "logistic.h"

/* ------------------------------------------------------------------------------------------------------------- what losses have */

enum { BETA, LABEL_SMOOTHING, SIMPO_GAMMA, CPO_ALPHA, DESIRABLE_WEIGHT, UNDESIRABLE_WEIGHT, CONSTANTS };
static const char *const CONSTANT_NAMES[CONSTANTS] = {"beta",      "label_smoothing",  "simpo_gamma",
                                                      "cpo_alpha", "desirable_weight", "undesirable_weight"};

typedef struct row {
    rein_preference_info info;
    unsigned char has[CONSTANTS];
    double published[CONSTANTS]; /* NaN: none */
} row;

#define NONE ((double)NAN)
#define MEANS_PER_TOKEN "s is a sum over tokens; divided by the number of tokens it does not favour long completions."

static const row LOSSES[] = {
    {{"dpo", "direct preference optimisation", "−log σ(h),  h = β((s_w − ref_w) − (s_l − ref_l))", "arXiv 2305.18290",
      "The reward model is the policy itself: β·(s − ref). TRL's loss_type sigmoid.", REIN_PREFERENCE_DPO, 1, 0},
     {1},
     {.1, NONE, NONE, NONE, NONE, NONE}},
    {{"cdpo", "conservative DPO: labels may be wrong", "−(1−ε)·log σ(h) − ε·log σ(−h),  h = β((s_w − ref_w) − (s_l − ref_l))",
      "Mitchell 2023, A note on DPO with noisy preferences",
      "ε is label_smoothing, the share of wrong labels: no value is published. The margin stops growing at σ(h) = 1 − ε.",
      REIN_PREFERENCE_CDPO, 1, 0},
     {1, 1},
     {.1, NONE, NONE, NONE, NONE, NONE}},
    {{"robust", "robust DPO: unbiased where labels are wrong",
      "[−(1−ε)·log σ(h) + ε·log σ(−h)]/(1−2ε),  h = β((s_w − ref_w) − (s_l − ref_l))", "arXiv 2403.00409",
      "ε is label_smoothing, the share of wrong labels, below 1/2: no value is published. The expectation over wrong labels is the "
      "loss of "
      "dpo on the right ones.",
      REIN_PREFERENCE_ROBUST, 1, 0},
     {1, 1},
     {.1, NONE, NONE, NONE, NONE, NONE}},
    {{"hinge", "SLiC's hinge on the reward of DPO", "max(0, 1 − h),  h = β((s_w − ref_w) − (s_l − ref_l))",
      "arXiv 2305.10425, 2309.06657", "A pair with h of 1 or more has no gradient.", REIN_PREFERENCE_HINGE, 1, 0},
     {1},
     {.1, NONE, NONE, NONE, NONE, NONE}},
    {{"ipo_mean", "identity preference optimisation, per token", "(δ − 1/(2β))²,  δ = (s_w − ref_w)/n_w − (s_l − ref_l)/n_l",
      "arXiv 2310.12036; TRL", "The paper's loss on means in place of sums, as TRL has it. " MEANS_PER_TOKEN,
      REIN_PREFERENCE_IPO_MEAN, 1, 1},
     {1},
     {.1, NONE, NONE, NONE, NONE, NONE}},
    {{"ipo_sum", "identity preference optimisation", "(δ − 1/(2β))²,  δ = (s_w − ref_w) − (s_l − ref_l)",
      "arXiv 2310.12036, eq. 17", "The loss of the paper, and of OpenRLHF. It has a finite optimum where dpo pushes without end.",
      REIN_PREFERENCE_IPO_SUM, 1, 0},
     {1},
     {.1, NONE, NONE, NONE, NONE, NONE}},
    {{"simpo", "simple preference optimisation: no reference", "−log σ(β(s_w/n_w − s_l/n_l) − γ)", "arXiv 2405.14734",
      "γ is simpo_gamma. " MEANS_PER_TOKEN, REIN_PREFERENCE_SIMPO, 0, 1},
     {1, 0, 1},
     {2, NONE, .5, NONE, NONE, NONE}},
    {{"cpo", "contrastive preference optimisation: no reference", "−log σ(β(s_w − s_l)) − α·s_w/n_w", "arXiv 2401.08417",
      "α is cpo_alpha: the log-likelihood of the chosen completion keeps it likely.", REIN_PREFERENCE_CPO, 0, 1},
     {1, 0, 0, 1},
     {.1, NONE, NONE, 1, NONE, NONE}},
    {{"orpo", "odds-ratio preference optimisation: no reference",
      "−s_w/n_w − β·log σ(o),  o = a_w − a_l − log(1 − e^a_w) + log(1 − e^a_l),  a = s/n", "arXiv 2403.07691",
      "Supervised training on the chosen completion, and a pair loss on the odds of both. β is the paper's λ.",
      REIN_PREFERENCE_ORPO, 0, 1},
     {1},
     {.1, NONE, NONE, NONE, NONE, NONE}},
    {{"kto", "Kahneman–Tversky optimisation: labels, not pairs",
      "λ_D(1 − σ(β(u − z))) if desirable, λ_U(1 − σ(β(z − u))) if not,  u = s − ref,  z = max(0, kl)", "arXiv 2402.01306",
      "kl is the mean of u over mismatched pairs: the prompt of one example with the completion of the next. Weights λ: "
      "desirable_weight and undesirable_weight.",
      REIN_PREFERENCE_KTO, 1, 0},
     {1, 0, 0, 0, 1, 1},
     {.1, NONE, NONE, NONE, 1, 1}},
};
enum { N_LOSSES = sizeof LOSSES / sizeof *LOSSES };

const rein_preference_info *rein_preference_at(size_t i) { return i < N_LOSSES ? &LOSSES[i].info : NULL; }

const rein_preference_info *rein_preference_describe(const char *name) {
    for (size_t i = 0; i < N_LOSSES; i++)
        if (!strcmp(LOSSES[i].info.name, name)) return &LOSSES[i].info;
    return NULL;
}

static int is_loss(rein_preference loss) { return (int)loss >= 0 && (int)loss < N_LOSSES; }

rein_preference_options rein_preference_published(rein_preference loss) {
    if (!is_loss(loss)) return (rein_preference_options){loss, NONE, NONE, NONE, NONE, NONE, NONE};
    const double *x = LOSSES[loss].published;
    return (rein_preference_options){
        loss, x[BETA], x[LABEL_SMOOTHING], x[SIMPO_GAMMA], x[CPO_ALPHA], x[DESIRABLE_WEIGHT], x[UNDESIRABLE_WEIGHT]};
}

/* ------------------------------------------------------------------------------------------------------------------------ checks */

rein_status rein_preference_check(const rein_preference_options *o, rein_error *err) {
    if (!is_loss(o->loss)) return rein_fail_at(err, REIN_EINVAL, "loss", -1, "is %d: no such loss", (int)o->loss);
    const row *r = &LOSSES[o->loss];
    const double given[CONSTANTS] = {o->beta,      o->label_smoothing,  o->simpo_gamma,
                                     o->cpo_alpha, o->desirable_weight, o->undesirable_weight};
    for (size_t k = 0; k < CONSTANTS; k++) {
        const char *name = CONSTANT_NAMES[k];
        if (!r->has[k] && !isnan(given[k]))
            return rein_fail_at(err, REIN_EINVAL, name, -1, "has no effect with loss %s", r->info.name);
        if (r->has[k] && isnan(given[k]))
            return rein_fail_at(err, REIN_EINVAL, name, -1, "is missing: loss %s needs it, and no value is published",
                                r->info.name);
        if (!r->has[k]) continue;
        if (k == BETA && !(o->beta > 0 && isfinite(o->beta)))
            return rein_fail_at(err, REIN_EINVAL, name, -1, "is %g: it must be above 0", o->beta);
        if (k == SIMPO_GAMMA && !isfinite(given[k])) return rein_check_finite(given[k], name, -1, err);
        if (k != SIMPO_GAMMA && rein_check_coefficient(given[k], name, err)) return REIN_EINVAL;
    }
    if (o->loss == REIN_PREFERENCE_CDPO && !(o->label_smoothing <= .5))
        return rein_fail_at(err, REIN_EINVAL, "label_smoothing", -1, "is %g: it must be 1/2 or less", o->label_smoothing);
    if (o->loss == REIN_PREFERENCE_ROBUST && !(o->label_smoothing < .5))
        return rein_fail_at(err, REIN_EINVAL, "label_smoothing", -1, "is %g: it must be below 1/2", o->label_smoothing);
    return REIN_OK;
}

static rein_status check_log_probs(const double *x, size_t n, const char *name, const char *loss, rein_error *err) {
    if (!x) return rein_fail_at(err, REIN_EINVAL, name, -1, "is missing: loss %s needs it", loss);
    return rein_check_numbers(x, REIN_F64, n, name, err);
}

static rein_status check_lengths(const int64_t *x, size_t n, const char *name, const char *loss, rein_error *err) {
    if (!x) return rein_fail_at(err, REIN_EINVAL, name, -1, "is missing: loss %s needs it", loss);
    for (size_t i = 0; i < n; i++)
        if (x[i] < 1)
            return rein_fail_at(err, REIN_EINVAL, name, (int64_t)i, "is %lld: a completion has 1 token or more", (long long)x[i]);
    return REIN_OK;
}

/* orpo: the odds e^a/(1 − e^a) of a completion that is certain are infinite. */
static rein_status check_below_zero(const double *x, size_t n, const char *name, rein_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!(x[i] < 0))
            return rein_fail_at(err, REIN_EINVAL, name, (int64_t)i, "is %g: orpo needs a log-prob below 0, where odds are finite",
                                x[i]);
    return REIN_OK;
}

static rein_status check_pairs(const rein_pairs *p, const rein_preference_info *info, rein_error *err) {
    const char *loss = info->name;
    const int orpo = info->loss == REIN_PREFERENCE_ORPO, both = info->loss != REIN_PREFERENCE_CPO;
    if (p->n == 0) return rein_fail_at(err, REIN_EINVAL, "chosen_log_probs", -1, "is empty: at least one pair is needed");
    rein_status status = check_log_probs(p->chosen_log_probs, p->n, "chosen_log_probs", loss, err);
    if (!status) status = check_log_probs(p->rejected_log_probs, p->n, "rejected_log_probs", loss, err);
    if (!status && info->uses_reference) status = check_log_probs(p->ref_chosen_log_probs, p->n, "ref_chosen_log_probs", loss, err);
    if (!status && info->uses_reference)
        status = check_log_probs(p->ref_rejected_log_probs, p->n, "ref_rejected_log_probs", loss, err);
    if (!status && info->uses_lengths) status = check_lengths(p->chosen_lengths, p->n, "chosen_lengths", loss, err);
    if (!status && info->uses_lengths && both) status = check_lengths(p->rejected_lengths, p->n, "rejected_lengths", loss, err);
    if (!status && orpo) status = check_below_zero(p->chosen_log_probs, p->n, "chosen_log_probs", err);
    if (!status && orpo) status = check_below_zero(p->rejected_log_probs, p->n, "rejected_log_probs", err);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- loss of a pair */

/* One pair: u is s where the loss has no reference; n is 1 where it has no lengths. */
typedef struct pair {
    double chosen, rejected, n_chosen, n_rejected;
} pair;

typedef struct pair_loss {
    double loss, by_chosen, by_rejected; /* dL/ds_w, dL/ds_l */
} pair_loss;

/* L as a function of x = β(u_w − u_l), with slope dL/dx. */
static pair_loss along(double loss, double slope, double beta) { return (pair_loss){loss, beta * slope, -beta * slope}; }

/* −log σ(h)                                                                                            arXiv 2305.18290 */
static pair_loss dpo(double h, double beta) { return along(rein_minus_log_logistic(h), -rein_logistic(-h), beta); }

/* −(1−ε)log σ(h) − ε log σ(−h)                                                                         Mitchell 2023 */
static pair_loss cdpo(double h, double beta, double noise) {
    const double loss = (1 - noise) * rein_minus_log_logistic(h) + noise * rein_minus_log_logistic(-h);
    return along(loss, noise * rein_logistic(h) - (1 - noise) * rein_logistic(-h), beta);
}

/* [−(1−ε)log σ(h) + ε log σ(−h)]/(1−2ε)                                                                arXiv 2403.00409 */
static pair_loss robust(double h, double beta, double noise) {
    const double loss = (1 - noise) * rein_minus_log_logistic(h) - noise * rein_minus_log_logistic(-h), scale = 1 - 2 * noise;
    return along(loss / scale, -((1 - noise) * rein_logistic(-h) + noise * rein_logistic(h)) / scale, beta);
}

/* max(0, 1 − h); at the kink the gradient is 0                                                         arXiv 2305.10425 */
static pair_loss hinge(double h, double beta) { return h < 1 ? along(1 - h, -1, beta) : (pair_loss){0, 0, 0}; }

/* (δ − 1/2β)², δ = u_w/n_w − u_l/n_l; ipo_sum has n = 1                                                arXiv 2310.12036 */
static pair_loss ipo(pair p, double beta) {
    const double gap = p.chosen / p.n_chosen - p.rejected / p.n_rejected - 1 / (2 * beta);
    return (pair_loss){gap * gap, 2 * gap / p.n_chosen, -2 * gap / p.n_rejected};
}

/* −log σ(β(s_w/n_w − s_l/n_l) − γ)                                                                     arXiv 2405.14734 */
static pair_loss simpo(pair p, double beta, double gamma) {
    const double x = beta * (p.chosen / p.n_chosen - p.rejected / p.n_rejected) - gamma, slope = -beta * rein_logistic(-x);
    return (pair_loss){rein_minus_log_logistic(x), slope / p.n_chosen, -slope / p.n_rejected};
}

/* −log σ(β(s_w − s_l)) − α·s_w/n_w                                                                     arXiv 2401.08417 */
static pair_loss cpo(pair p, double beta, double alpha) {
    pair_loss l = dpo(beta * (p.chosen - p.rejected), beta);
    l.loss -= alpha * p.chosen / p.n_chosen;
    l.by_chosen -= alpha / p.n_chosen;
    return l;
}

/* log(1 − e^a) for a < 0, by the form that does not cancel (Mächler 2012). */
static double log_rest(double a) { return a > -0.6931471805599453 ? log(-expm1(a)) : log1p(-exp(a)); }

/* −a_w − β log σ(o), o = a_w − a_l − log(1−e^a_w) + log(1−e^a_l), a = s/n; do/da_w = 1/(1−e^a_w)       arXiv 2403.07691 */
static pair_loss orpo(pair p, double beta) {
    const double a = p.chosen / p.n_chosen, b = p.rejected / p.n_rejected;
    const double odds = a - b - log_rest(a) + log_rest(b), slope = beta * rein_logistic(-odds);
    return (pair_loss){beta * rein_minus_log_logistic(odds) - a, (slope / expm1(a) - 1) / p.n_chosen,
                       -slope / expm1(b) / p.n_rejected};
}

static pair_loss loss_of_pair(pair p, const rein_preference_options *o) {
    const double h = o->beta * (p.chosen - p.rejected);
    switch (o->loss) {
    case REIN_PREFERENCE_CDPO: return cdpo(h, o->beta, o->label_smoothing);
    case REIN_PREFERENCE_ROBUST: return robust(h, o->beta, o->label_smoothing);
    case REIN_PREFERENCE_HINGE: return hinge(h, o->beta);
    case REIN_PREFERENCE_IPO_MEAN:
    case REIN_PREFERENCE_IPO_SUM: return ipo(p, o->beta);
    case REIN_PREFERENCE_SIMPO: return simpo(p, o->beta, o->simpo_gamma);
    case REIN_PREFERENCE_CPO: return cpo(p, o->beta, o->cpo_alpha);
    case REIN_PREFERENCE_ORPO: return orpo(p, o->beta);
    case REIN_PREFERENCE_DPO:
    case REIN_PREFERENCE_KTO: break; /* kto: rein_kto_loss */
    }
    return dpo(h, o->beta);
}

/* ------------------------------------------------------------------------------------------------------------ the mean over pairs */

static pair pair_at(const rein_pairs *p, const rein_preference_info *info, size_t i) {
    pair it = {p->chosen_log_probs[i], p->rejected_log_probs[i], 1, 1};
    if (info->uses_reference) it.chosen -= p->ref_chosen_log_probs[i], it.rejected -= p->ref_rejected_log_probs[i];
    if (info->uses_lengths) it.n_chosen = (double)p->chosen_lengths[i];
    if (info->uses_lengths && info->loss != REIN_PREFERENCE_CPO) it.n_rejected = (double)p->rejected_lengths[i];
    return it;
}

static void add_metrics(rein_preference_metrics *m, const rein_pairs *p, size_t i, pair it, const rein_preference_options *o,
                        double weight) {
    const int means = o->loss == REIN_PREFERENCE_SIMPO || o->loss == REIN_PREFERENCE_ORPO;
    const double chosen = o->beta * it.chosen / (means ? it.n_chosen : 1);
    const double rejected = o->beta * it.rejected / (means ? it.n_rejected : 1);
    m->rewards_chosen += weight * chosen;
    m->rewards_rejected += weight * rejected;
    m->rewards_margins += weight * (chosen - rejected);
    m->rewards_accuracies += chosen > rejected;
    m->logps_chosen += weight * p->chosen_log_probs[i];
    m->logps_rejected += weight * p->rejected_log_probs[i];
}

static rein_status too_large(rein_error *err) {
    return rein_fail(err, REIN_ERANGE, "the loss is not finite, or its gradient: a log-prob or a constant is too large");
}

static int finite_metrics(const rein_preference_metrics *m) {
    return isfinite(m->rewards_chosen + m->rewards_rejected + m->rewards_margins) && isfinite(m->logps_chosen + m->logps_rejected);
}

rein_status rein_preference_loss(double *loss, double *grad_chosen_log_probs, double *grad_rejected_log_probs,
                                 rein_preference_metrics *metrics, const rein_pairs *pairs, const rein_preference_options *options,
                                 rein_error *err) {
    rein_preference_metrics m = {0};
    rein_status status = rein_preference_check(options, err);
    if (!status && options->loss == REIN_PREFERENCE_KTO)
        status = rein_fail_at(err, REIN_EINVAL, "loss", -1, "is kto, which has no pairs: rein_kto_loss is needed");
    const rein_preference_info *info = status ? NULL : &LOSSES[options->loss].info;
    if (!status) status = check_pairs(pairs, info, err);
    if (status) return status;
    const double weight = 1 / (double)pairs->n;
    double sum = 0, steepest = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        const pair it = pair_at(pairs, info, i);
        const pair_loss l = loss_of_pair(it, options);
        sum += weight * l.loss;
        steepest += fabs(l.by_chosen) * weight + fabs(l.by_rejected) * weight;
        add_metrics(&m, pairs, i, it, options, weight);
    }
    m.rewards_accuracies *= weight;
    if (!isfinite(sum) || !isfinite(steepest) || !finite_metrics(&m)) return too_large(err);
    for (size_t i = 0; i < pairs->n && (grad_chosen_log_probs || grad_rejected_log_probs); i++) {
        const pair_loss l = loss_of_pair(pair_at(pairs, info, i), options);
        if (grad_chosen_log_probs) grad_chosen_log_probs[i] = weight * l.by_chosen;
        if (grad_rejected_log_probs) grad_rejected_log_probs[i] = weight * l.by_rejected;
    }
    *loss = sum;
    if (metrics) *metrics = m;
    return REIN_OK;
}

/* --------------------------------------------------------------------------------------------------------------------------- kto */

static rein_status check_kto(const double *log_probs, const double *ref_log_probs, const uint8_t *labels, size_t n, double kl,
                             const rein_preference_options *options, rein_error *err) {
    rein_status status = rein_preference_check(options, err);
    if (!status && options->loss != REIN_PREFERENCE_KTO)
        return rein_fail_at(err, REIN_EINVAL, "loss", -1, "is %s: this is the loss of kto", LOSSES[options->loss].info.name);
    if (!status && n == 0) return rein_fail_at(err, REIN_EINVAL, "log_probs", -1, "is empty: at least one completion is needed");
    if (!status) status = check_log_probs(log_probs, n, "log_probs", "kto", err);
    if (!status) status = check_log_probs(ref_log_probs, n, "ref_log_probs", "kto", err);
    if (!status && !labels) status = rein_fail_at(err, REIN_EINVAL, "labels", -1, "is missing: loss kto needs it");
    return status ? status : rein_check_finite(kl, "kl", -1, err);
}

/* λ_D(1 − σ(β(u − z))) if desirable, λ_U(1 − σ(β(z − u))) if not; the slope by u                       arXiv 2402.01306 */
static double kto(double *slope, double u, double z, int desirable, const rein_preference_options *o) {
    const double sign = desirable ? 1 : -1, weight = desirable ? o->desirable_weight : o->undesirable_weight;
    const double x = sign * o->beta * (u - z), rest = rein_logistic(-x);
    *slope = -sign * weight * o->beta * rein_logistic(x) * rest;
    return weight * rest;
}

static double mean_or_none(double sum, size_t n) { return n ? sum / (double)n : NONE; }

rein_status rein_kto_loss(double *loss, double *grad_log_probs, rein_preference_metrics *metrics, const double *log_probs,
                          const double *ref_log_probs, const uint8_t *labels, size_t n, double kl,
                          const rein_preference_options *options, rein_error *err) {
    const rein_status status = check_kto(log_probs, ref_log_probs, labels, n, kl, options, err);
    if (status) return status;
    const double weight = 1 / (double)n, z = kl > 0 ? kl : 0;
    double sum = 0, steepest = 0, slope, u[2] = {0}, s[2] = {0};
    size_t counts[2] = {0};
    for (size_t i = 0; i < n; i++) {
        const int label = labels[i] != 0;
        sum += weight * kto(&slope, log_probs[i] - ref_log_probs[i], z, label, options);
        steepest = fmax(steepest, fabs(slope));
        u[label] += log_probs[i] - ref_log_probs[i];
        s[label] += log_probs[i];
        counts[label]++;
    }
    const double chosen = options->beta * mean_or_none(u[1], counts[1]), rejected = options->beta * mean_or_none(u[0], counts[0]);
    const rein_preference_metrics m = {
        chosen, rejected, chosen - rejected, NONE, mean_or_none(s[1], counts[1]), mean_or_none(s[0], counts[0])};
    if (!isfinite(sum) || !isfinite(steepest) || isinf(chosen) || isinf(rejected) || isinf(s[0]) || isinf(s[1]))
        return too_large(err);
    for (size_t i = 0; grad_log_probs && i < n; i++) {
        kto(&slope, log_probs[i] - ref_log_probs[i], z, labels[i] != 0, options);
        grad_log_probs[i] = weight * slope;
    }
    *loss = sum;
    if (metrics) *metrics = m;
    return REIN_OK;
}
