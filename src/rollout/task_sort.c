/* task_sort.c - "sort": the letters of a word, or a list of numbers, to be put in order; the answer follows the last =.
 *
 * Each way of working that the demonstrations show is right, and each next step can be read off the step before it: a small model can learn
 * any of them. They differ in length by a factor of ten or so, which leaves a budget something to decide. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "task.h"

enum { FEWEST = 3, MOST_LETTERS = 7, MOST_NUMBERS = 6, MOST = 7, DIGITS = 2, NUMBERS = 100 };

static const char before[] = "Q:sort ", behind[] = "\nA:";

typedef struct items {
    char text[MOST][DIGITS + 1];
    int n;
    const char *between; /* "" for letters, "," for numbers */
} items;

/* Both kinds at once: letters are of one length, and numbers have no leading 0. */
static int is_less(const char *a, const char *b) { return strlen(a) != strlen(b) ? strlen(a) < strlen(b) : strcmp(a, b) < 0; }

/* After those that are equal to it. */
static void insert(items *sorted, const char *item) {
    int at = sorted->n++;
    for (; at && is_less(item, sorted->text[at - 1]); at--) memcpy(sorted->text[at], sorted->text[at - 1], sizeof *sorted->text);
    snprintf(sorted->text[at], sizeof *sorted->text, "%s", item);
}

static items sort(const items *unsorted) {
    items sorted = {.between = unsorted->between};
    for (int i = 0; i < unsorted->n; i++) insert(&sorted, unsorted->text[i]);
    return sorted;
}

static int print_items(char *to, size_t size, const items *x) {
    int at = 0;
    for (int i = 0; i < x->n; i++) at += snprintf(to + at, size - (size_t)at, "%s%s", i ? x->between : "", x->text[i]);
    return at;
}

static void ask(rein_question *question, rein_draws *draws) {
    const int letters = (int)rein_draw(draws, 2), most = letters ? MOST_LETTERS : MOST_NUMBERS;
    items x = {.n = FEWEST + (int)rein_draw(draws, (uint64_t)(most - FEWEST) + 1), .between = letters ? "" : ","};
    for (int i = 0; i < x.n; i++) {
        if (letters) snprintf(x.text[i], sizeof *x.text, "%c", 'a' + (int)rein_draw(draws, 26));
        else snprintf(x.text[i], sizeof *x.text, "%u", (unsigned)rein_draw(draws, NUMBERS) % NUMBERS);
    }
    const items sorted = sort(&x);
    size_t at = (size_t)snprintf(question->prompt, sizeof question->prompt, "%s", before);
    at += (size_t)print_items(question->prompt + at, sizeof question->prompt - at, &x);
    snprintf(question->prompt + at, sizeof question->prompt - at, "%s", behind);
    print_items(question->answer, sizeof question->answer, &sorted);
}

/* Blanks after a comma are allowed. */
static int right(const rein_example *example, const char *response, size_t length) {
    const char *answer = example->answer;
    size_t begin = length;
    while (begin && response[begin - 1] != '=') begin--;
    if (!begin) return 0;
    response += begin, length -= begin;
    rein_trim(&response, &length);
    for (size_t i = 0; i < length; i++) {
        if (response[i] == ' ' && i && response[i - 1] == ',') {
            while (i + 1 < length && response[i + 1] == ' ') i++;
            continue;
        }
        if (!*answer || response[i] != *answer++) return 0;
    }
    return !*answer;
}

/* --------------------------------------------------------------------------------------------------------------- demonstrations */

/* What the prompt asks to sort; n is 0 if it is not of this task. */
static items read_items(const char *prompt) {
    items x = {.between = ""};
    if (strncmp(prompt, before, strlen(before)) != 0) return x;
    const char *at = prompt + strlen(before), *end = strchr(at, '\n');
    const int numbers = *at >= '0' && *at <= '9';
    if (numbers) x.between = ",";
    while (end && at < end && x.n < MOST) {
        const size_t length = numbers ? strcspn(at, ",\n") : 1;
        if (!length || length > DIGITS) break;
        snprintf(x.text[x.n++], sizeof *x.text, "%.*s", (int)length, at);
        at += length + (at[length] == ',');
    }
    if (at != end) x.n = 0;
    return x;
}

static rein_status put(rein_text *text, const items *x, rein_error *err) {
    char line[MOST * (DIGITS + 1) + 1] = "";
    print_items(line, sizeof line, x);
    return rein_text_print(text, err, "%s", line);
}

/* Take d, put in b: bd, put in c: bcd, put in a: abcd, so it is =abcd */
static rein_status sentences(rein_text *text, const items *x, rein_draws *draws, rein_error *err) {
    static const char *const opens[] = {"Take", "We have", "I start with"}, *const adds[] = {"put in", "then comes", "insert"};
    const char *open = opens[rein_draw(draws, 3)], *add = adds[rein_draw(draws, 3)];
    items sorted = {.between = x->between};
    rein_status status = rein_text_print(text, err, "%s %s, ", open, x->text[0]);
    insert(&sorted, x->text[0]);
    for (int i = 1; i < x->n && !status; i++) {
        insert(&sorted, x->text[i]);
        status = rein_text_print(text, err, "%s %s: ", add, x->text[i]);
        if (!status) status = put(text, &sorted, err);
        if (!status) status = rein_text_print(text, err, ", ");
    }
    return status ? status : rein_text_print(text, err, "so it is ");
}

/* d+b=bd;bd+c=bcd;bcd+a=abcd;=abcd */
static rein_status steps(rein_text *text, const items *x, rein_error *err) {
    items sorted = {.between = x->between};
    rein_status status = REIN_OK;
    insert(&sorted, x->text[0]);
    for (int i = 1; i < x->n && !status; i++) {
        status = put(text, &sorted, err);
        if (!status) status = rein_text_print(text, err, "+%s=", x->text[i]);
        insert(&sorted, x->text[i]);
        if (!status) status = put(text, &sorted, err);
        if (!status) status = rein_text_print(text, err, ";");
    }
    return status;
}

/* The least of what is left, and the rest: a:dbc;b:dc;c:d;=abcd */
static rein_status picks(rein_text *text, const items *x, rein_error *err) {
    items left = *x;
    rein_status status = REIN_OK;
    while (left.n > 1 && !status) {
        int least = 0;
        for (int i = 1; i < left.n; i++)
            if (is_less(left.text[i], left.text[least])) least = i;
        status = rein_text_print(text, err, "%s:", left.text[least]);
        left.n--;
        memmove(left.text[least], left.text[least + 1], (size_t)(left.n - least) * sizeof *left.text);
        if (!status) status = put(text, &left, err);
        if (!status) status = rein_text_print(text, err, ";");
    }
    return status;
}

/* d;bd;bcd=abcd */
static rein_status terse(rein_text *text, const items *x, rein_error *err) {
    items sorted = {.between = x->between};
    rein_status status = REIN_OK;
    for (int i = 0; i + 1 < x->n && !status; i++) {
        insert(&sorted, x->text[i]);
        if (i) status = rein_text_print(text, err, ";");
        if (!status) status = put(text, &sorted, err);
    }
    return status;
}

static rein_status demonstrate(rein_text *text, const rein_example *example, rein_draws *draws, rein_error *err) {
    const uint64_t style = rein_draw(draws, 100);
    const items x = read_items(example->prompt);
    rein_status status = REIN_OK;
    if (!x.n) return rein_fail(err, REIN_EINVAL, "the prompt is not one of task sort");
    if (style < 40) status = sentences(text, &x, draws, err);
    else if (style < 60) status = steps(text, &x, err);
    else if (style < 75) status = picks(text, &x, err);
    else if (style < 90) status = terse(text, &x, err);
    const items sorted = sort(&x);
    if (!status) status = rein_text_print(text, err, "=");
    return status ? status : put(text, &sorted, err);
}

const rein_builtin_task rein_task_sort = {.info = {"sort", "put letters or numbers in order, with the working written out"},
                                          .ask = ask,
                                          .right = right,
                                          .demonstrate = demonstrate};
