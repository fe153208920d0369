/* reward.c - several judges, one reward: how a judge is named in settings and metrics, and the weighted sum of the scores.
 *
 * Built-in judges and functions go first: if one of them fails, no program has been asked yet, and everything is as it was. All programs are
 * asked before the first answer is read, so that they work at the same time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/show.h"
#include "model/tokenizer_parts.h"
#include "reward.h"
#include "trajectory.h"

enum { TIMEOUT = 30, MOST_NAMES = 32, LISTED = 200 };

struct rein_reward {
    rein_judge *judges; /* [n] */
    size_t n;
    int failed;
    rein_text log;
};

static rein_status no_memory(rein_error *err) { return rein_fail(err, REIN_ENOMEM, "no memory for the rewards"); }

const char *rein_reward_place(char to[REIN_REWARD_PLACE], const char *name, const char *what, size_t number, size_t of,
                              const rein_example *example) {
    char shown[60], text[2 * sizeof shown];
    const rein_message *last = example->n_messages ? &example->messages[example->n_messages - 1] : NULL;
    const char *prompt = example->prompt ? example->prompt : last ? last->content : "";
    const size_t length = example->prompt || !last ? strlen(prompt) : last->length;
    size_t n = 0;
    for (size_t i = 0; i < length && i < sizeof shown; i++) { /* newlines as \n */
        if (prompt[i] == '\n') text[n++] = '\\';
        text[n++] = prompt[i] == '\n' ? 'n' : prompt[i];
    }
    rein_show_short(shown, sizeof shown, text, n);
    snprintf(to, REIN_REWARD_PLACE, "%s: %s %zu of %zu (prompt \"%s\")", name, what, number + 1, of, shown);
    return to;
}

/* ------------------------------------------------------------------------------------------------------------------------ names */

static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* The next word of a command, without the folders before it; its length, 0 at the end or where the shell has work to do. */
static size_t next_word(const char **word, const char **rest) {
    const char *at = *rest;
    while (rein_is_blank(*at)) at++;
    const size_t whole = strcspn(at, " \t\n\v\f\r'\"\\`$|&;<>()");
    *rest = at + whole;
    if (**rest && !rein_is_blank(**rest)) return 0;
    size_t begin = whole;
    while (begin && at[begin - 1] != '/') begin--;
    *word = at + begin;
    return whole - begin;
}

static int is_file(const char *word, size_t length) {
    size_t dot = length;
    while (dot && word[dot - 1] != '.') dot--;
    return dot > 1 && dot < length && is_letter(word[dot]) && *word != '-' && !memchr(word, '=', length);
}

/* "./judge --strict" is judge; "python3 -u rewards/judge.py" is judge.py: where the first word is looked up in PATH, it may only be what runs
 * the file that follows. */
static size_t find_name(const char **name, const char *command) {
    const char *rest = command, *word = NULL;
    while (rein_is_blank(*rest)) rest++;
    const char *first = rest;
    size_t length = next_word(name, &rest);
    if (!length || memchr(first, '/', (size_t)(rest - first))) return length;
    for (size_t n; (n = next_word(&word, &rest)) > 0;)
        if (is_file(word, n)) return *name = word, n;
    return length;
}

static int is_taken(const rein_judge *judges, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(judges[i].name, name)) return 1;
    return 0;
}

/* Names are parts of the names of metrics: letters, digits, point, - and _. A second one is NAME-2. */
static void give_name(rein_judge *judges, size_t i, const char *name, size_t length) {
    char *to = judges[i].name, plain[REIN_JUDGE_NAME - 8];
    if (!length) name = "program", length = strlen(name);
    if (length >= sizeof plain) length = sizeof plain - 1;
    for (size_t c = 0; c < length; c++) plain[c] = is_letter(name[c]) || strchr("0123456789.-_", name[c]) ? name[c] : '_';
    plain[length] = 0;
    snprintf(to, REIN_JUDGE_NAME, "%s", plain);
    for (unsigned n = 2; is_taken(judges, i, to); n++) snprintf(to, REIN_JUDGE_NAME, "%s-%u", plain, n);
}

/* ------------------------------------------------------------------------------------------------------------------------ specs */

static const char GROUP[] = "group:", FUNCTION[] = "function:";

static int begins_with(const char *text, size_t length, const char *beginning) {
    return length >= strlen(beginning) && !strncmp(text, beginning, strlen(beginning));
}

/* The built-in judge that spec [length] names, and the argument after the colon (NULL: no colon). */
static const rein_judge_kind *find_kind(const char **argument, const char *spec, size_t length) {
    const rein_judge_kind *kind;
    for (size_t i = 0; (kind = rein_judge_kind_at(i)); i++) {
        size_t at = strlen(kind->name);
        if (at > length || strncmp(spec, kind->name, at) != 0) continue;
        *argument = at < length && spec[at] == ':' ? spec + at + 1 : NULL;
        while (at < length && rein_is_blank(spec[at])) at++;
        if (*argument || at == length) return kind;
    }
    return NULL;
}

/* One word alone is taken for a judge's name, not for a command. */
static int is_command(const char *spec, size_t length) {
    if (begins_with(spec, length, GROUP)) return 1;
    if (begins_with(spec, length, FUNCTION)) return 0;
    for (size_t i = 0; i < length; i++)
        if (spec[i] == '/' || rein_is_blank(spec[i])) return 1;
    return 0;
}

int rein_judge_is_program(const char *spec, size_t length) {
    const char *argument;
    while (length && rein_is_blank(*spec)) spec++, length--;
    return !find_kind(&argument, spec, length) && is_command(spec, length);
}

static void list_usages(char to[LISTED]) {
    const rein_judge_kind *kind;
    size_t n = 0;
    to[0] = 0;
    for (size_t i = 0; (kind = rein_judge_kind_at(i)) && n < LISTED; i++)
        n += (size_t)snprintf(to + n, LISTED - n, "%s%s", i ? ", " : "", kind->usage);
}

/* The usage of the judge that a word may have been meant for, or NULL. */
static const char *nearest_usage(const char *word) {
    const char *names[MOST_NAMES + 1] = {"group"};
    const rein_judge_kind *kind;
    for (size_t i = 0; i + 1 < MOST_NAMES && (kind = rein_judge_kind_at(i)); i++) names[i + 1] = kind->name;
    const char *nearest = rein_nearest(word, names);
    for (size_t i = 0; nearest && (kind = rein_judge_kind_at(i)); i++)
        if (nearest == kind->name) return kind->usage;
    return nearest ? "group: COMMAND" : NULL;
}

/* Reports a word that does not name a judge: it is misspelt, or a program without its path. */
static rein_status refuse_word(const char *spec, rein_error *err) {
    char shown[60], word[60], usages[LISTED];
    const size_t length = strcspn(spec, ":");
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), spec);
    rein_show_short(shown, sizeof shown, spec, strlen(spec));
    const char *usage = nearest_usage(word);
    if (usage)
        return rein_fail_at(err, REIN_EINVAL, "reward", -1,
                            "\"%s\" is unknown: did you mean %s? (A program of this folder is ./%s)", shown, usage, shown);
    list_usages(usages);
    return rein_fail_at(err, REIN_EINVAL, "reward", -1, "\"%s\" is unknown: %s or a command, with a blank or a slash in it (./%s)",
                        shown, usages, shown);
}

static rein_status open_kind(rein_judge *judge, const char *argument, const char *spec, rein_error *err) {
    char shown[80];
    const rein_judge_kind *kind = judge->kind;
    rein_show_short(shown, sizeof shown, spec, strlen(spec));
    if (kind->has_argument && (!argument || !*argument))
        return rein_fail_at(err, REIN_EINVAL, "reward", -1, "\"%s\" needs an argument after the colon: %s", shown, kind->usage);
    if (!kind->has_argument && argument)
        return rein_fail_at(err, REIN_EINVAL, "reward", -1, "\"%s\" takes no argument: %s", shown, kind->usage);
    rein_error why = {0};
    const rein_status status = kind->open ? kind->open(judge, argument, &why) : REIN_OK;
    if (status == REIN_EINVAL) return rein_fail_at(err, status, "reward", -1, "\"%s\": %s", shown, why.message);
    return status ? rein_fail_with(err, status, &why) : REIN_OK;
}

static rein_status open_program(rein_judge *judges, size_t i, const char *spec, const rein_reward_options *o, rein_error *err) {
    const char *name = NULL;
    const int whole_groups = begins_with(spec, strlen(spec), GROUP);
    if (!is_command(spec, strlen(spec))) return refuse_word(spec, err);
    if (whole_groups) spec += strlen(GROUP);
    while (rein_is_blank(*spec)) spec++;
    if (!*spec) return rein_fail_at(err, REIN_EINVAL, "reward", -1, "\"group:\" needs a command after the colon: group: COMMAND");
    const size_t length = find_name(&name, spec);
    give_name(judges, i, name, length);
    const rein_judge_program_options options = {.name = judges[i].name,
                                                .command = spec,
                                                .whole_groups = whole_groups,
                                                .timeout = o->timeout > 0 ? o->timeout : TIMEOUT,
                                                .restarts = o->restarts,
                                                .directory = o->directory};
    return rein_judge_program_open(&judges[i].program, &options, err);
}

/* The run was started by a program that had the function; only such a program can resume it. */
static rein_status open_function(rein_judge *judges, size_t i, const char *spec, const rein_reward_options *o, rein_error *err) {
    char shown[60];
    const char *name = spec + strlen(FUNCTION);
    for (size_t k = 0; k < o->n_functions; k++)
        if (!strcmp(o->functions[k].name, name)) {
            judges[i].function = &o->functions[k];
            give_name(judges, i, name, strlen(name));
            return REIN_OK;
        }
    rein_show_short(shown, sizeof shown, name, strlen(name));
    return rein_fail_at(
        err, REIN_EINVAL, "reward", -1,
        "\"function:%s\" is a function of the program that calls the library, and this one has no function of that name", shown);
}

static rein_status open_judge(rein_judge *judges, size_t i, const char *spec, const rein_reward_options *o, rein_error *err) {
    const char *argument = NULL;
    rein_judge *judge = &judges[i];
    while (rein_is_blank(*spec)) spec++;
    if (!*spec) return rein_fail_at(err, REIN_EINVAL, "reward", (int64_t)i, "is empty: the name of a judge or a command is needed");
    judge->weight = o->weights ? o->weights[i] : 1;
    if (!isfinite(judge->weight))
        return rein_fail_at(err, REIN_EINVAL, "weights", (int64_t)i, "is %g: a finite number is needed", judge->weight);
    if (begins_with(spec, strlen(spec), FUNCTION)) return open_function(judges, i, spec, o, err);
    judge->kind = find_kind(&argument, spec, strlen(spec));
    if (!judge->kind) return open_program(judges, i, spec, o, err);
    const char *own = NULL; /* a name in its argument */
    const size_t found = argument && judge->kind->find_name ? judge->kind->find_name(&own, argument) : 0;
    give_name(judges, i, found ? own : judge->kind->name, found ? found : strlen(judge->kind->name));
    judge->options = o;
    const rein_status status = open_kind(judge, argument, spec, err);
    judge->options = NULL;
    return status;
}

/* -------------------------------------------------------------------------------------------------------------- open and close */

rein_status rein_reward_open(rein_reward **reward, const char *const *specs, size_t n, const rein_task *task,
                             const rein_reward_options *options, rein_error *err) {
    const rein_reward_options o = options ? *options : (rein_reward_options){0};
    *reward = NULL;
    if (!n) return rein_fail_at(err, REIN_EINVAL, "reward", -1, "is missing: one judge or more is needed");
    if (!(o.timeout >= 0 && isfinite(o.timeout)))
        return rein_fail_at(err, REIN_EINVAL, "timeout", -1, "is %g: seconds above 0 are needed (0: %d)", o.timeout, TIMEOUT);
    rein_reward *r = calloc(1, sizeof *r);
    if (!r) return no_memory(err);
    r->judges = calloc(n, sizeof *r->judges);
    rein_status status = r->judges ? REIN_OK : no_memory(err);
    for (; r->n < n && !status; r->n++) {
        r->judges[r->n].task = task;
        status = open_judge(r->judges, r->n, specs[r->n], &o, err);
        if (status && err && !strcmp(err->field, "reward")) err->index = (int64_t)r->n; /* the message quotes it */
    }
    if (status) rein_reward_close(r);
    else *reward = r;
    return status;
}

void rein_reward_close(rein_reward *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) {
        const rein_judge_kind *kind = r->judges[i].kind;
        if (kind && kind->close) kind->close(&r->judges[i]);
        rein_judge_program_close(r->judges[i].program);
    }
    free(r->judges);
    rein_text_free(&r->log);
    free(r);
}

const char *rein_reward_name(const rein_reward *r, size_t i) { return r->judges[i].name; }

size_t rein_reward_count(const rein_reward *r) { return r->n; }

const char *rein_reward_log(rein_reward *r) {
    if (r->log.data) rein_text_cut(&r->log, 0);
    for (size_t i = 0; i < r->n; i++)
        if (r->judges[i].program) rein_judge_program_log(&r->log, r->judges[i].program);
    return r->log.length ? r->log.data : "";
}

/* ----------------------------------------------------------------------------------------------------------------------- giving */

/* Scores are kept judge by judge: given [judges][n]. */
static rein_status give_built_in(double *given, const rein_judge *judge, const rein_response *responses, size_t n,
                                 rein_error *err) {
    if (judge->kind->give_all) return judge->kind->give_all(given, judge, responses, n, err);
    for (size_t i = 0; i < n; i++) {
        char place[REIN_REWARD_PLACE];
        rein_response response = responses[i];
        if (!response.text) response.text = ""; /* of length 0 */
        rein_status status = judge->kind->give(&given[i], judge, &response, err);
        if (!status && !isfinite(given[i])) status = rein_fail(err, REIN_ERANGE, "the reward is %g: not a finite number", given[i]);
        if (!status) continue;
        rein_reward_place(place, judge->name, "response", i, n, response.example);
        return rein_fail_in(err, status, "%s", place);
    }
    return REIN_OK;
}

/* Of a function only what is not a number may be missing: it does not apply. */
static rein_status give_function(double *given, const rein_judge *judge, const rein_response *responses, size_t n,
                                 rein_error *err) {
    const rein_status status = judge->function->give(judge->function->context, given, responses, n, err);
    if (status) return rein_fail_in(err, status, "%s", judge->name);
    for (size_t i = 0; i < n; i++)
        if (isinf(given[i])) {
            char place[REIN_REWARD_PLACE];
            rein_reward_place(place, judge->name, "response", i, n, responses[i].example);
            return rein_fail(err, REIN_ERANGE, "%s: the reward is %g: not a finite number", place, given[i]);
        }
    return REIN_OK;
}

/* What a judge needs of an example does not depend on the completion: an empty one shows it. */
rein_status rein_reward_check(const rein_reward *r, const rein_example *example, rein_error *err) {
    const rein_response empty = {.example = example, .text = ""};
    double reward;
    for (size_t j = 0; j < r->n; j++) {
        const rein_judge *judge = &r->judges[j];
        const rein_judge_kind *kind = judge->kind;
        const rein_status status = !kind         ? REIN_OK
                                   : kind->check ? kind->check(judge, example, err)
                                                 : kind->give(&reward, judge, &empty, err);
        if (status) return rein_fail_in(err, status, "reward %s", judge->name);
    }
    return REIN_OK;
}

rein_status rein_reward_check_programs(rein_reward *r, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t j = 0; j < r->n && !status; j++)
        if (r->judges[j].program) status = rein_judge_program_check(r->judges[j].program, err);
    return status;
}

static rein_status give_all(double *given, rein_reward *r, const rein_response *responses, size_t n, rein_error *err) {
    rein_status status = REIN_OK;
    for (size_t j = 0; j < r->n && !status; j++)
        if (r->judges[j].kind) status = give_built_in(given + j * n, &r->judges[j], responses, n, err);
    for (size_t j = 0; j < r->n && !status; j++)
        if (r->judges[j].function) status = give_function(given + j * n, &r->judges[j], responses, n, err);
    if (status) return status;
    for (size_t j = 0; j < r->n && !status; j++)
        if (r->judges[j].program) status = rein_judge_program_ask(r->judges[j].program, responses, n, err);
    for (size_t j = 0; j < r->n && !status; j++)
        if (r->judges[j].program) status = rein_judge_program_collect(given + j * n, r->judges[j].program, err);
    r->failed = status != REIN_OK;
    return status;
}

/* rewards [n] = Σ weight·given over the judges that apply, in their order. */
static rein_status add_up(double *rewards, const double *given, const rein_reward *r, const rein_response *responses, size_t n,
                          rein_error *err) {
    for (size_t i = 0; i < n; i++) {
        size_t apply = 0;
        rewards[i] = 0;
        for (size_t j = 0; j < r->n; j++)
            if (!isnan(given[j * n + i])) rewards[i] += r->judges[j].weight * given[j * n + i], apply++;
        if (apply && isfinite(rewards[i])) continue;
        char place[REIN_REWARD_PLACE];
        rein_reward_place(place, "reward", "response", i, n, responses[i].example);
        if (!apply) return rein_fail(err, REIN_ERANGE, "%s: no judge gave a reward: a missing reward is not 0", place);
        return rein_fail(err, REIN_ERANGE, "%s: the weighted sum is %g: not a finite number", place, rewards[i]);
    }
    return REIN_OK;
}

rein_status rein_reward_give(double *rewards, double *components, rein_reward *r, const rein_response *responses, size_t n,
                             rein_error *err) {
    if (r->failed) return rein_fail(err, REIN_EIO, "a program failed before: the rewards can only be closed");
    if (!n) return REIN_OK;
    double *given = n < SIZE_MAX / sizeof *given / (r->n + 1) ? malloc((r->n + 1) * n * sizeof *given) : NULL;
    if (!given) return no_memory(err);
    double *sums = given + r->n * n;
    rein_status status = give_all(given, r, responses, n, err);
    if (!status) status = add_up(sums, given, r, responses, n, err);
    if (!status) memcpy(rewards, sums, n * sizeof *rewards);
    for (size_t i = 0; i < n && components && !status; i++)
        for (size_t j = 0; j < r->n; j++) components[i * r->n + j] = given[j * n + i];
    free(given);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------------------- groups */

static size_t count_trajectories(const rein_groups *groups) {
    size_t n = 0;
    for (size_t g = 0; g < groups->n; g++) n += groups->groups[g].n;
    return n;
}

/* What was sampled, if it is the end of the history. */
static const int32_t *sampled_ids(size_t *n, const rein_history *h) {
    size_t first = h->n;
    while (first && h->mask[first - 1]) first--;
    for (size_t i = 0; i < first; i++)
        if (h->mask[i]) return *n = 0, NULL;
    return *n = h->n - first, h->ids + first;
}

static rein_response response_of(const rein_group *group, size_t g, const rein_trajectory *t) {
    const rein_text *text = t->n_histories ? &t->histories[0].text : &(rein_text){0};
    size_t n_ids = 0;
    const int32_t *ids = t->n_histories ? sampled_ids(&n_ids, t->histories) : NULL;
    return (rein_response){.example = &group->example,
                           .group = g,
                           .text = text->data ? text->data : "",
                           .length = text->length,
                           .tokens = rein_trajectory_length(t),
                           .truncated = t->truncated,
                           .step = t->policy_step,
                           .ids = ids,
                           .n_ids = n_ids,
                           .earned = t->reward};
}

/* Responses to judge, and what comes of them. */
typedef struct judging {
    rein_response *responses;   /* [n] */
    double *rewards, *given;    /* [n], [n·judges] */
    rein_named_number **scores; /* [n][judges] */
    size_t n;
} judging;

static void free_judging(judging *j, size_t judges) {
    for (size_t i = 0; j->scores && i < j->n; i++) rein_named_numbers_free(j->scores[i], j->scores[i] ? judges : 0);
    free(j->responses);
    free(j->rewards);
    free(j->given);
    free(j->scores);
}

static rein_status begin_judging(judging *j, const rein_groups *groups, size_t judges, rein_error *err) {
    size_t i = 0;
    j->n = count_trajectories(groups);
    j->responses = calloc(j->n + 1, sizeof *j->responses);
    j->rewards = calloc(j->n + 1, sizeof *j->rewards);
    j->given = calloc(j->n * judges + 1, sizeof *j->given);
    j->scores = calloc(j->n + 1, sizeof *j->scores);
    if (!j->responses || !j->rewards || !j->given || !j->scores) return no_memory(err);
    for (size_t g = 0; g < groups->n; g++)
        for (size_t t = 0; t < groups->groups[g].n; t++)
            j->responses[i++] = response_of(&groups->groups[g], g, &groups->groups[g].trajectories[t]);
    return REIN_OK;
}

static rein_status name_scores(judging *j, const rein_reward *r, rein_error *err) {
    for (size_t i = 0; i < j->n; i++) {
        rein_named_number *list = NULL;
        size_t n = 0;
        rein_status status = REIN_OK;
        for (size_t k = 0; k < r->n && !status; k++)
            status = rein_named_numbers_set(&list, &n, r->judges[k].name, j->given[i * r->n + k], err);
        if (status) rein_named_numbers_free(list, n);
        else j->scores[i] = list;
        if (status) return status;
    }
    return REIN_OK;
}

static void take_rewards(rein_groups *groups, judging *j, size_t judges) {
    size_t i = 0;
    for (size_t g = 0; g < groups->n; g++)
        for (size_t k = 0; k < groups->groups[g].n; k++, i++) {
            rein_trajectory *t = &groups->groups[g].trajectories[k];
            rein_named_numbers_free(t->scores, t->n_scores);
            t->reward = j->rewards[i];
            t->scores = j->scores[i], t->n_scores = judges;
            j->scores[i] = NULL;
        }
}

rein_status rein_reward_groups(rein_groups *groups, rein_reward *r, rein_error *err) {
    judging j = {0};
    rein_status status = begin_judging(&j, groups, r->n, err);
    if (!status) status = rein_reward_give(j.rewards, j.given, r, j.responses, j.n, err);
    if (!status) status = name_scores(&j, r, err);
    if (!status) take_rewards(groups, &j, r->n);
    free_judging(&j, r->n);
    return status;
}
