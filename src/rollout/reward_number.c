/* reward_number.c - numbers as people write them: 1,234.5, -7, +3, .5, 6e23, and "= 22." at the end of a sentence.
 *
 * They are compared digit by digit, never as doubles: 0.1 is 0.10, and a number with 40 digits is equal to itself alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reward.h"

enum { LONGEST_VALUE = 300 };
static const char minus_sign[] = "\xe2\x88\x92"; /* U+2212: models write it */

static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static size_t run(const char *text, size_t length) {
    size_t n = 0;
    while (n < length && is_digit(text[n])) n++;
    return n;
}

/* ---------------------------------------------------------------------------------------------------------------------- reading */

static size_t read_sign(int *negative, const char *text, size_t length) {
    const size_t wide = sizeof minus_sign - 1;
    *negative = 0;
    if (length >= wide && !memcmp(text, minus_sign, wide)) return *negative = 1, wide;
    if (!length || (text[0] != '-' && text[0] != '+')) return 0;
    *negative = text[0] == '-';
    return 1;
}

/* 1,234,567: one to three digits, then threes. Anything else, as 1,23 or 12,3456, is a list of numbers. */
static size_t read_thousands(const char *text, size_t length, size_t first) {
    size_t n = first;
    if (first < 1 || first > 3) return first;
    while (n < length && text[n] == ',' && run(text + n + 1, length - n - 1) == 3) n += 4;
    return n;
}

/* e23, E-5; 0 if there are no digits. */
static size_t read_exponent(const char *text, size_t length) {
    if (length < 2 || (text[0] != 'e' && text[0] != 'E')) return 0;
    const size_t sign = text[1] == '-' || text[1] == '+' ? 2 : 1, n = run(text + sign, length - sign);
    return n ? sign + n : 0;
}

size_t rein_decimal_read(rein_decimal *number, const char *text, size_t length, int commas) {
    int negative;
    const size_t sign = read_sign(&negative, text, length);
    const char *digits = text + sign;
    const size_t left = length - sign;
    size_t n = run(digits, left);
    if (commas) n = read_thousands(digits, left, n);
    const size_t fraction = n < left && digits[n] == '.' ? run(digits + n + 1, left - n - 1) : 0;
    if (fraction) n += 1 + fraction; /* a point without digits behind it is the end of a sentence */
    if (!n) return 0;
    n += read_exponent(digits + n, left - n);
    *number = (rein_decimal){digits, n, negative};
    return sign + n;
}

/* In 3-5 and (a)-5 the minus is between operands: it is not a sign. */
static int is_operand(char c) { return is_digit(c) || is_letter(c) || c == ')' || c == ']' || c == '}'; }

/* Whether text + at, where a number can be read, is not in the middle of something else. 0: one byte further there may be a number. */
static int begins_number(const char *text, size_t at) {
    if (!at || is_digit(text[at])) return 1;
    if (text[at] == '.') return !is_operand(text[at - 1]) && text[at - 1] != '.';
    return !is_operand(text[at - 1]);
}

rein_last rein_decimal_last(rein_decimal *number, const char *text, size_t length) {
    rein_last last = REIN_LAST_NONE;
    for (size_t at = 0; at < length;) {
        rein_decimal found;
        const size_t n = rein_decimal_read(&found, text + at, length - at, 1);
        if (!n || !begins_number(text, at)) {
            at++;
            continue;
        }
        if (!at || !is_letter(text[at - 1])) {
            *number = found;
            last = at > 1 && text[at - 1] == '/' && is_digit(text[at - 2]) ? REIN_LAST_FRACTION : REIN_LAST_NUMBER;
        }
        at += n;
    }
    return last;
}

/* ----------------------------------------------------------------------------------------------------------------------- values */

/* 0.00ddd·10^scale; digits without zeros in front of them. */
typedef struct normal {
    const char *digits, *end;
    int64_t scale;
} normal;

/* Beyond any number of digits, and far from overflow. */
static int64_t exponent_of(const char *text, const char *end) {
    int64_t value = 0;
    const int negative = text < end && *text == '-';
    for (text += text < end && !is_digit(*text); text < end; text++)
        if (value < INT64_C(1) << 50) value = 10 * value + (*text - '0');
    return negative ? -value : value;
}

/* The next digit at or after *at, which moves behind it; -1 at the end. */
static int next_digit(const char **at, const char *end) {
    while (*at < end && !is_digit(**at)) (*at)++;
    return *at < end ? *(*at)++ - '0' : -1;
}

static normal normalise(const rein_decimal *number) {
    const char *end = number->digits + number->length, *mantissa = number->digits;
    normal n = {mantissa, mantissa, 0};
    while (n.end < end && *n.end != 'e' && *n.end != 'E') n.end++;
    if (n.end < end) n.scale = exponent_of(n.end + 1, end);
    int behind_point = 0, significant = 0;
    for (const char *c = mantissa; c < n.end; c++) {
        if (*c == '.') behind_point = 1;
        if (!is_digit(*c)) continue;
        if (!significant && *c != '0') significant = 1, n.digits = c;
        if (significant && !behind_point) n.scale++;
        if (!significant && behind_point) n.scale--;
    }
    if (!significant) n.digits = n.end, n.scale = 0; /* every zero is the same */
    return n;
}

int rein_decimal_equal(const rein_decimal *a, const rein_decimal *b) {
    normal x = normalise(a), y = normalise(b);
    const int zero = x.digits == x.end && y.digits == y.end;
    if (x.scale != y.scale || (a->negative != b->negative && !zero)) return 0;
    for (int left = 1; left;) {
        const int one = next_digit(&x.digits, x.end), other = next_digit(&y.digits, y.end);
        left = one >= 0 || other >= 0;
        if ((one > 0 ? one : 0) != (other > 0 ? other : 0)) return 0; /* zeros at the end are as good as none */
    }
    return 1;
}

/* Without a point, which a locale may spell otherwise. */
double rein_decimal_value(const rein_decimal *number) {
    char text[LONGEST_VALUE + 40];
    normal n = normalise(number);
    size_t length = 0;
    for (int digit; (digit = next_digit(&n.digits, n.end)) >= 0;) {
        if (length == LONGEST_VALUE) return NAN;
        text[length++] = (char)('0' + digit);
    }
    if (!length) return 0;
    const int64_t exponent = n.scale - (int64_t)length, most = 100000;
    snprintf(text + length, sizeof text - length, "e%d", (int)(exponent > most ? most : exponent < -most ? -most : exponent));
    return number->negative ? -strtod(text, NULL) : strtod(text, NULL);
}
