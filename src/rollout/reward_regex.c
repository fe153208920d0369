/* reward_regex.c - regular expressions as judges, by PCRE2. They are interpreted, not compiled: which expressions take too long must not
 * depend on the machine.
 *
 * PCRE2's own limit starts again at every byte where a match may begin, and so allows for hours. The steps are counted here: PCRE2 calls back
 * before each item of the pattern that it tries. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "reward.h"

enum { STEPS = 5000000, KILOBYTES = 65536, DEEPEST_GROUP = 100 };

typedef struct pattern {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_context *limits;
    pcre2_match_data *found;
    uint32_t groups, steps;
} pattern;

static void *get_memory(size_t size, void *unused) {
    (void)unused;
    return malloc(size);
}
static void give_memory(void *memory, void *unused) {
    (void)unused;
    free(memory);
}

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for a regular expression"); }

void rein_judge_regex_close(rein_judge *judge) {
    pattern *p = judge->state;
    if (!p) return;
    pcre2_match_data_free(p->found);
    pcre2_match_context_free(p->limits);
    pcre2_code_free(p->code);
    pcre2_general_context_free(p->memory);
    free(p);
}

static int count_step(pcre2_callout_block *unused, void *steps) {
    (void)unused;
    return ++*(uint32_t *)steps > STEPS ? PCRE2_ERROR_MATCHLIMIT : 0;
}

static rein_status compile(pattern *p, const char *expression, rein_error *err) {
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR reason[120] = "";
    pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
    if (!context) return no_memory(err);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, DEEPEST_GROUP);
    const uint32_t options = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
    p->code = pcre2_compile((PCRE2_SPTR)expression, strlen(expression), options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (p->code) return REIN_OK;
    if (code == PCRE2_ERROR_HEAP_FAILED || code == PCRE2_ERROR_NOMEMORY) return no_memory(err);
    pcre2_get_error_message(code, reason, sizeof reason);
    return rein_fail(err, REIN_EINVAL, "the expression is wrong at byte %zu: %s", (size_t)at, (const char *)reason);
}

static rein_status prepare(pattern *p, rein_error *err) {
    p->limits = pcre2_match_context_create(p->memory);
    p->found = pcre2_match_data_create_from_pattern(p->code, p->memory);
    if (!p->limits || !p->found) return no_memory(err);
    pcre2_set_callout(p->limits, count_step, &p->steps);
    pcre2_set_match_limit(p->limits, STEPS);
    pcre2_set_heap_limit(p->limits, KILOBYTES);
    pcre2_pattern_info(p->code, PCRE2_INFO_CAPTURECOUNT, &p->groups);
    return REIN_OK;
}

rein_status rein_judge_regex_open(rein_judge *judge, const char *argument, rein_error *err) {
    pattern *p = calloc(1, sizeof *p);
    if (!p) return no_memory(err);
    judge->state = p; /* freed with the judge, whole or not */
    p->memory = pcre2_general_context_create(get_memory, give_memory, NULL);
    if (!p->memory) return no_memory(err);
    const rein_status status = compile(p, argument, err);
    return status ? status : prepare(p, err);
}

/* *matched: 0 or 1. */
static rein_status match(int *matched, pattern *p, const char *text, size_t length, rein_error *err) {
    PCRE2_UCHAR reason[120] = "";
    p->steps = 0;
    const int code = pcre2_match(p->code, (PCRE2_SPTR)text, length, 0, 0, p->found, p->limits);
    *matched = code >= 0;
    if (code >= 0 || code == PCRE2_ERROR_NOMATCH) return REIN_OK;
    if (code == PCRE2_ERROR_NOMEMORY) return no_memory(err);
    if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT)
        return rein_fail(err, REIN_EINVAL, "the expression takes more than %d steps on it: it tries too many ways to match", STEPS);
    if (code == PCRE2_ERROR_HEAPLIMIT)
        return rein_fail(err, REIN_EINVAL, "the expression takes more than %d MB on it: it tries too many ways to match",
                         KILOBYTES >> 10);
    pcre2_get_error_message(code, reason, sizeof reason);
    return rein_fail(err, REIN_EINVAL, "it cannot be matched: %s", (const char *)reason);
}

rein_status rein_judge_regex(double *reward, const rein_judge *judge, const rein_response *response, rein_error *err) {
    pattern *p = judge->state;
    const char *answer = NULL;
    int matched;
    rein_status status = p->groups ? rein_judge_answer(&answer, response, err) : REIN_OK;
    if (!status) status = match(&matched, p, response->text, response->length, err);
    if (status) return status;
    *reward = matched;
    if (!matched || !p->groups) return REIN_OK;
    const PCRE2_SIZE *group = pcre2_get_ovector_pointer(p->found) + 2;
    *reward = group[0] != PCRE2_UNSET && group[0] <= group[1] &&
              rein_same_text(response->text + group[0], group[1] - group[0], answer, strlen(answer));
    return REIN_OK;
}
