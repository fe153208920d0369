/* update_pass.c - a strip of weights w + Σ_i c_i·G_i; compiled per type and instruction set.
 *
 * Rows are added in order, in double; the sums of a strip stay in the caches. The columns are independent, so the compiler vectorises
 * them. */
#include "update.h"

#include "../kernel/lanes.h"

/* sum[j] += Σ c·g, four rows at a time, because each access to `sum` costs a load and a store. */
static void add_rows(double *restrict sum, const real *g, size_t stride, const double *c, size_t rows, size_t columns) {
    size_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        const real *g0 = g + i * stride, *g1 = g0 + stride, *g2 = g1 + stride, *g3 = g2 + stride;
        const double c0 = c[i], c1 = c[i + 1], c2 = c[i + 2], c3 = c[i + 3];
        for (size_t j = 0; j < columns; j++)
            sum[j] = sum[j] + c0 * (double)g0[j] + c1 * (double)g1[j] + c2 * (double)g2[j] + c3 * (double)g3[j];
    }
    for (; i < rows; i++)
        for (size_t j = 0; j < columns; j++) sum[j] += c[i] * (double)g[i * stride + j];
}

int KERNEL(rein_update_pass)(const rein_update_task *t, size_t first, size_t last) {
    const size_t columns = last - first;
    real *updated = (real *)t->updated + first;
    const real *weights = (const real *)t->weights + first;
    double sum[REIN_UPDATE_STRIP];
    int finite = 1;
    if (t->before) memcpy((real *)t->before + first, updated, columns * sizeof *updated);
    memset(sum, 0, columns * sizeof *sum);
    add_rows(sum, (const real *)t->grads + first, t->p, t->c, t->n, columns);
    for (size_t j = 0; j < columns; j++) {
        sum[j] += (double)weights[j];
        finite &= isfinite((real)sum[j]) != 0;
    }
    for (size_t j = 0; finite && j < columns; j++) updated[j] = (real)sum[j];
    return finite;
}
