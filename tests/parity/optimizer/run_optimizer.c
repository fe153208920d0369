/* run_optimizer.c - the C optimizer and its schedules, for pytest.
 *
 *     run_optimizer adamw BETA1 BETA2 EPSILON DECAY MAX_NORM ROWSxCOLUMNSxDECAYS…
 *         stdin: values; then for each step a rate (double) and the gradients. stdout: after each step the norm (double), values, first
 *         and second moments. All of them raw, floats unless it says double.
 *     run_optimizer rates SHAPE RATE WARMUP TOTAL FINAL_SHARE STEPS
 *         stdout: one rate a line, as a hex float
 * Exit 2 and the message on stderr when it is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/train.h"

enum { MOST = 16 };

static int refused(const rein_error *err) {
    fprintf(stderr, "%s\n", err->message);
    return 2;
}

typedef struct model {
    rein_parameter parameters[MOST];
    size_t n, total;
    float *value, *gradient, *first, *second;
} model;

/* "64x33x1" */
static int add_parameter(model *m, const char *shape) {
    rein_parameter *p = &m->parameters[m->n++];
    p->name = shape;
    if (sscanf(shape, "%zux%zux%d", &p->rows, &p->columns, &p->decay) != 3) return 0;
    p->size = p->rows * p->columns;
    m->total += p->size;
    return 1;
}

static int make_arrays(model *m) {
    float *all = calloc(4 * m->total, sizeof *all);
    if (!all) return 0;
    m->value = all, m->gradient = all + m->total, m->first = m->gradient + m->total, m->second = m->first + m->total;
    for (size_t i = 0, at = 0; i < m->n; at += m->parameters[i++].size)
        m->parameters[i].value = m->value + at, m->parameters[i].gradient = m->gradient + at;
    return 1;
}

static int run(model *m, rein_adamw options) {
    int64_t step = 0;
    double norm;
    rein_error err;
    while (fread(&options.learning_rate, sizeof(double), 1, stdin) == 1) {
        if (fread(m->gradient, sizeof(float), m->total, stdin) != m->total) return 1;
        if (rein_adamw_step(&norm, m->first, m->second, &step, m->parameters, m->n, &options, NULL, &err)) return refused(&err);
        fwrite(&norm, sizeof norm, 1, stdout);
        fwrite(m->value, sizeof(float), m->total, stdout);
        fwrite(m->first, sizeof(float), m->total, stdout);
        fwrite(m->second, sizeof(float), m->total, stdout);
    }
    return 0;
}

static int adamw(char **arguments, int n) {
    model m = {.n = 0};
    const rein_adamw options = {
        0, atof(arguments[0]), atof(arguments[1]), atof(arguments[2]), atof(arguments[3]), atof(arguments[4])};
    for (int i = 5; i < n && m.n < MOST; i++)
        if (!add_parameter(&m, arguments[i])) return 1;
    if (!make_arrays(&m) || fread(m.value, sizeof(float), m.total, stdin) != m.total) return 1;
    const int status = run(&m, options);
    free(m.value);
    return status;
}

static int rates(char **arguments) {
    const rein_schedule s = {(rein_schedule_shape)atoi(arguments[0]), atof(arguments[1]), atoll(arguments[2]), atoll(arguments[3]),
                             atof(arguments[4])};
    rein_error err;
    for (int64_t step = 0; step < atoll(arguments[5]); step++) {
        double rate;
        if (rein_learning_rate(&rate, &s, step, &err)) return refused(&err);
        printf("%a\n", rate);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 7 && !strcmp(argv[1], "adamw")) return adamw(argv + 2, argc - 2);
    if (argc == 8 && !strcmp(argv[1], "rates")) return rates(argv + 2);
    fprintf(stderr, "usage: the comment of run_optimizer.c\n");
    return 1;
}
