/* task_format.c - "format": an instruction whose form can be checked. The response is the answer, all of it: a word of introduction is wrong.
 *
 * Seven kinds of instruction, known by their first word. Of most the answer is one text, in which only blanks beside commas, dashes and
 * newlines are free. Three leave a choice (JSON its blanks; which words; which digits) and are checked by what the prompt says. */
#include <stdio.h>
#include <string.h>

#include "task.h"

enum { LETTERS = 6, WORDS = 6, FEWEST = 2, MOST = 5, MOST_DIGITS = 6, SQUEEZED = 2 * REIN_QUESTION_TEXT };

static const char *const words[LETTERS][WORDS] = {
    {"blue", "bird", "book", "boat", "bread", "bell"}, {"cat", "cloud", "cake", "coin", "cold", "corn"},
    {"fish", "fox", "farm", "fire", "flag", "fog"},    {"green", "goat", "gold", "grass", "game", "gate"},
    {"sun", "snow", "sand", "song", "stone", "star"},  {"tree", "tea", "town", "toy", "table", "time"},
};
static const char *const keys[] = {"name", "color", "size", "item", "kind", "value", "place", "count"};

typedef struct form {
    const char *name, *open, *close;
} form;

static const form separators[] = {{"separated by commas", ",", ""},
                                  {"separated by spaces", " ", ""},
                                  {"separated by dashes", "-", ""},
                                  {"one per line", "\n", ""}};
static const form wraps[] = {
    {"in brackets", "[", "]"}, {"in parentheses", "(", ")"}, {"in quotes", "\"", "\""}, {"between stars", "*", "*"}};
static const form spellings[] = {{"dashes", "-", ""}, {"dots", ".", ""}, {"spaces", " ", ""}};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *draw_word(rein_draws *draws) {
    const uint64_t letter = rein_draw(draws, LETTERS);
    return words[letter][rein_draw(draws, WORDS)];
}

static int draw_between(rein_draws *draws, int low, int high) { return low + (int)rein_draw(draws, (uint64_t)(high - low) + 1); }

static const char *draw_capitals(rein_draws *draws) { return rein_draw(draws, 2) ? ", in capital letters" : ""; }

/* Only if the instruction asks for it. */
static void capitalise(char *text, const char *capitals) {
    for (; *capitals && *text; text++)
        if (*text >= 'a' && *text <= 'z') *text = (char)(*text - 'a' + 'A');
}

/* ----------------------------------------------------------------------------------------------------------------- instructions */

static void ask_say(rein_question *question, rein_draws *draws) {
    const char *word = draw_word(draws), *capitals = draw_capitals(draws);
    const int n = draw_between(draws, FEWEST, MOST);
    const form *separator = &separators[rein_draw(draws, COUNT(separators))];
    snprintf(question->prompt, sizeof question->prompt, "Q:Say \"%s\" %d times, %s%s.\nA:", word, n, separator->name, capitals);
    for (int i = 0, at = 0; i < n; i++)
        at += snprintf(question->answer + at, sizeof question->answer - (size_t)at, "%s%s", i ? separator->open : "", word);
    capitalise(question->answer, capitals);
}

static void ask_list(rein_question *question, rein_draws *draws) {
    const int low = draw_between(draws, 0, 20), high = low + draw_between(draws, 2, 5), down = draw_between(draws, 0, 1);
    const form *separator = &separators[rein_draw(draws, COUNT(separators))];
    snprintf(question->prompt, sizeof question->prompt, "Q:List the numbers from %d %sto %d, %s.\nA:", down ? high : low,
             down ? "down " : "", down ? low : high, separator->name);
    for (int i = low, at = 0; i <= high; i++)
        at += snprintf(question->answer + at, sizeof question->answer - (size_t)at, "%s%d", i > low ? separator->open : "",
                       down ? high + low - i : i);
}

static void ask_put(rein_question *question, rein_draws *draws) {
    const char *word = draw_word(draws), *capitals = draw_capitals(draws);
    const form *wrap = &wraps[rein_draw(draws, COUNT(wraps))];
    snprintf(question->prompt, sizeof question->prompt, "Q:Put \"%s\" %s%s.\nA:", word, wrap->name, capitals);
    snprintf(question->answer, sizeof question->answer, "%s%s%s", wrap->open, word, wrap->close);
    capitalise(question->answer, capitals);
}

static void ask_spell(rein_question *question, rein_draws *draws) {
    const char *word = draw_word(draws), *capitals = draw_capitals(draws);
    const form *spelling = &spellings[rein_draw(draws, COUNT(spellings))];
    snprintf(question->prompt, sizeof question->prompt, "Q:Spell \"%s\" with %s between the letters%s.\nA:", word, spelling->name,
             capitals);
    for (int i = 0, at = 0; word[i]; i++)
        at += snprintf(question->answer + at, sizeof question->answer - (size_t)at, "%s%c", i ? spelling->open : "", word[i]);
    capitalise(question->answer, capitals);
}

static void ask_write(rein_question *question, rein_draws *draws) {
    const char *key = keys[rein_draw(draws, COUNT(keys))];
    char value[20];
    if (rein_draw(draws, 2)) snprintf(value, sizeof value, "\"%s\"", draw_word(draws));
    else snprintf(value, sizeof value, "%d", draw_between(draws, 0, 99));
    snprintf(question->prompt, sizeof question->prompt, "Q:Write JSON with the key \"%s\" and the value %s.\nA:", key, value);
    snprintf(question->answer, sizeof question->answer, "{\"%s\": %s}", key, value);
}

/* n different words of a letter. */
static void choose_words(char to[REIN_QUESTION_TEXT], char letter, int n, const char *separator, rein_draws *draws) {
    const char *row[WORDS];
    size_t from = 0;
    while (from + 1 < LETTERS && words[from][0][0] != letter) from++;
    memcpy(row, words[from], sizeof row);
    for (int i = 0, at = 0; i < n; i++) {
        const int drawn = draw_between(draws, i, WORDS - 1);
        const char *word = row[drawn];
        row[drawn] = row[i];
        at += snprintf(to + at, REIN_QUESTION_TEXT - (size_t)at, "%s%s", i ? separator : "", word);
    }
}

static void ask_choose(rein_question *question, rein_draws *draws) {
    const char letter = words[rein_draw(draws, LETTERS)][0][0];
    const int n = draw_between(draws, FEWEST, MOST);
    const form *separator = &separators[rein_draw(draws, COUNT(separators))];
    snprintf(question->prompt, sizeof question->prompt, "Q:Choose %d different words that begin with %c, %s.\nA:", n, letter,
             separator->name);
    choose_words(question->answer, letter, n, separator->open, draws);
}

/* The first digit is not 0, so that the number has all its digits. */
static void choose_digits(char to[REIN_QUESTION_TEXT], int n, int digit, int last, rein_draws *draws) {
    for (int i = 0; i < n; i++) to[i] = (char)('0' + draw_between(draws, i == 0, 9));
    to[last ? n - 1 : 0] = (char)('0' + digit);
    to[n] = 0;
}

static void ask_give(rein_question *question, rein_draws *draws) {
    const int n = draw_between(draws, 2, MOST_DIGITS), last = draw_between(draws, 0, 1), digit = draw_between(draws, !last, 9);
    snprintf(question->prompt, sizeof question->prompt, "Q:Give a number with %d digits that %s %d.\nA:", n,
             last ? "ends in" : "begins with", digit);
    choose_digits(question->answer, n, digit, last, draws);
}

/* -------------------------------------------------------------------------------------------------------------------- verifiers */

/* Removes blanks beside a comma, a dash or a newline; of others, one stays. The length, or SIZE_MAX: too long. */
static size_t squeeze(char to[SQUEEZED], const char *text, size_t length) {
    size_t n = 0;
    int blank = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == ' ' || text[i] == '\t' || text[i] == '\r') {
            blank = 1;
            continue;
        }
        const int alone = text[i] && strchr(",-\n", text[i]);
        if (blank && n && !alone && !strchr(",-\n", to[n - 1])) to[n++] = ' ';
        if (n + 2 >= SQUEEZED) return SIZE_MAX;
        to[n++] = text[i];
        blank = 0;
    }
    to[n] = 0;
    return n;
}

static int right_text(const rein_example *example, const char *response, size_t length) {
    char given[SQUEEZED], wanted[SQUEEZED];
    const size_t n = squeeze(given, response, length), m = squeeze(wanted, example->answer, strlen(example->answer));
    return n == m && n != SIZE_MAX && !memcmp(given, wanted, n);
}

/* Without what is free in JSON: blanks outside of texts. The length, or SIZE_MAX: too long. */
static size_t squeeze_json(char to[SQUEEZED], const char *text, size_t length) {
    size_t n = 0;
    int inside = 0;
    for (size_t i = 0; i < length; i++) {
        inside ^= text[i] == '"';
        if (!inside && text[i] && strchr(" \t\r\n", text[i])) continue;
        if (n == SQUEEZED) return SIZE_MAX;
        to[n++] = text[i];
    }
    return n;
}

static int right_json(const rein_example *example, const char *response, size_t length) {
    char given[SQUEEZED], wanted[SQUEEZED];
    const size_t n = squeeze_json(given, response, length), m = squeeze_json(wanted, example->answer, strlen(example->answer));
    return n == m && n != SIZE_MAX && !memcmp(given, wanted, n);
}

typedef struct choice {
    int n;
    char letter;
    const form *separator;
} choice;

/* n is 0 if the prompt is of another kind. */
static choice read_choice(const char *prompt) {
    char name[32] = "";
    choice c = {0};
    if (sscanf(prompt, "Q:Choose %d different words that begin with %c, %31[a-z ].", &c.n, &c.letter, name) != 3 || c.n < 1 ||
        c.n > MOST)
        return (choice){0};
    for (size_t i = 0; i < COUNT(separators); i++)
        if (!strcmp(separators[i].name, name)) c.separator = &separators[i];
    return c.separator ? c : (choice){0};
}

static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* All letters, the first of them `letter`; a capital is as good. */
static int is_word(const char *text, size_t length, char letter) {
    for (size_t i = 0; i < length; i++)
        if (small(text[i]) < 'a' || small(text[i]) > 'z') return 0;
    return length > 1 && small(text[0]) == letter;
}

static int is_same(const char *a, const char *b, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (small(a[i]) != small(b[i])) return 0;
    return 1;
}

/* n words between separators, each of them new. */
static int right_choice(const rein_example *example, const char *response, size_t length) {
    const choice wanted = read_choice(example->prompt);
    char given[SQUEEZED];
    size_t begins[MOST], lengths[MOST], at = 0;
    const size_t total = squeeze(given, response, length);
    if (!wanted.n || total == SIZE_MAX) return 0;
    for (int i = 0; i < wanted.n; i++) {
        if (at > total) return 0;
        begins[i] = at, lengths[i] = strcspn(given + at, wanted.separator->open);
        if (!is_word(given + at, lengths[i], wanted.letter)) return 0;
        for (int k = 0; k < i; k++)
            if (lengths[k] == lengths[i] && is_same(given + begins[k], given + at, lengths[i])) return 0;
        at += lengths[i] + 1;
    }
    return at == total + 1;
}

typedef struct digits {
    int n, digit, last;
} digits;

/* n is 0 if the prompt is of another kind. */
static digits read_digits(const char *prompt) {
    char how[8] = "";
    digits d = {0};
    if (sscanf(prompt, "Q:Give a number with %d digits that %7s %*s %d.", &d.n, how, &d.digit) != 3 || d.n < 1 || d.n > MOST_DIGITS)
        return (digits){0};
    d.last = !strcmp(how, "ends");
    return d;
}

static int right_digits(const rein_example *example, const char *response, size_t length) {
    const digits wanted = read_digits(example->prompt);
    if (!wanted.n || length != (size_t)wanted.n || response[0] == '0') return 0;
    for (size_t i = 0; i < length; i++)
        if (response[i] < '0' || response[i] > '9') return 0;
    return response[wanted.last ? length - 1 : 0] == '0' + wanted.digit;
}

/* --------------------------------------------------------------------------------------------------------------- demonstrations */

/* After commas and colons a blank or none. */
static rein_status put(rein_text *text, const char *answer, rein_draws *draws, rein_error *err) {
    const int wide = draw_between(draws, 0, 1);
    rein_status status = REIN_OK;
    for (const char *at = answer; *at && !status; at++) {
        if (*at == ' ' && at > answer && strchr(",:", at[-1])) continue;
        status = rein_text_print(text, err, "%c%s", *at, wide && strchr(",:", *at) ? " " : "");
    }
    return status;
}

/* The answer, or, where there is a choice, another one. */
static rein_status demonstrate(rein_text *text, const rein_example *example, rein_draws *draws, rein_error *err) {
    const choice c = read_choice(example->prompt);
    const digits d = read_digits(example->prompt);
    char answer[REIN_QUESTION_TEXT];
    if (c.n) choose_words(answer, c.letter, c.n, c.separator->open, draws);
    else if (d.n) choose_digits(answer, d.n, d.digit, d.last, draws);
    return put(text, c.n || d.n ? answer : example->answer, draws, err);
}

static const struct {
    const char *begins;
    void (*ask)(rein_question *question, rein_draws *draws);
    int (*right)(const rein_example *example, const char *response, size_t length);
} kinds[] = {{"Q:Say ", ask_say, right_text},     {"Q:List ", ask_list, right_text},   {"Q:Put ", ask_put, right_text},
             {"Q:Spell ", ask_spell, right_text}, {"Q:Write ", ask_write, right_json}, {"Q:Choose ", ask_choose, right_choice},
             {"Q:Give ", ask_give, right_digits}};

static void ask(rein_question *question, rein_draws *draws) { kinds[rein_draw(draws, COUNT(kinds))].ask(question, draws); }

static int right(const rein_example *example, const char *response, size_t length) {
    rein_trim(&response, &length);
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (!strncmp(example->prompt, kinds[i].begins, strlen(kinds[i].begins))) return kinds[i].right(example, response, length);
    return 0;
}

const rein_builtin_task rein_task_format = {.info = {"format", "say something in exactly the form that is asked for"},
                                            .ask = ask,
                                            .right = right,
                                            .demonstrate = demonstrate};
