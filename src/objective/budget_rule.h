/* budget_rule.h - the effect of a token budget on rewards, four doubles at a time. */
#ifndef REIN_OBJECTIVE_BUDGET_RULE_H
#define REIN_OBJECTIVE_BUDGET_RULE_H

#include <stdint.h>

typedef double W __attribute__((vector_size(32)));
typedef int64_t WM __attribute__((vector_size(32))); /* a comparison's lanes: all ones or all zeros */

static inline W w_keep(WM m, W x) { return (W)((WM)x & m); }
static inline W w_pick(WM m, W a, W b) { return (W)(((WM)a & m) | ((WM)b & ~m)); }

/* r − λ·max(0, L − B)                                                                          Kimi K2, arXiv 2507.20534 */
static inline W budget_linear(W reward, W length, W budget, W coef) {
    const W over = length - budget;
    return reward - coef * w_keep(over > 0, over);
}

/* L > B: −penalty                                                        K2's own rule: truncate and assign a penalty */
static inline W budget_truncate(W reward, W length, W budget, W penalty) { return w_pick(length > budget, -penalty, reward); }

#endif
