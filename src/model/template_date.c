/* template_date.c - strftime_now: the date is given by the caller, so that a resumed run sees the same prompt. Names are English. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "model/template.h"

static bool read_date(struct tm *to, const char *date) {
    static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, hour = 0, minute = 0, second = 0, n = 0;
    if (sscanf(date, "%4d-%2d-%2d%n", &year, &month, &day, &n) != 3 || n != 10) return false;
    if (date[n] && (sscanf(date + n, " %2d:%2d:%2d%n", &hour, &minute, &second, &n) != 3 || date[10 + n])) return false;
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days[month - 1]) return false;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) return false;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (month == 2 && day == 29 && !leap) return false;
    int before = day - 1;
    for (int i = 0; i < month - 1; i++) before += i == 1 && !leap ? 28 : days[i];
    const int y = year - 1;
    *to = (struct tm){.tm_year = year - 1900,
                      .tm_mon = month - 1,
                      .tm_mday = day,
                      .tm_hour = hour,
                      .tm_min = minute,
                      .tm_sec = second,
                      .tm_yday = before,
                      .tm_wday = (y * 365 + y / 4 - y / 100 + y / 400 + before + 1) % 7};
    return true;
}

bool rein_date_valid(const char *date) {
    struct tm read;
    return read_date(&read, date);
}

/* One conversion, in English whatever the locale is; 0: it is not supported. */
static size_t put_one(char *to, size_t size, char c, const struct tm *t) {
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    const int hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    int n = 0;
    switch (c) {
    case 'Y': n = snprintf(to, size, "%d", t->tm_year + 1900); break;
    case 'y': n = snprintf(to, size, "%02d", (t->tm_year + 1900) % 100); break;
    case 'm': n = snprintf(to, size, "%02d", t->tm_mon + 1); break;
    case 'd': n = snprintf(to, size, "%02d", t->tm_mday); break;
    case 'e': n = snprintf(to, size, "%2d", t->tm_mday); break;
    case 'H': n = snprintf(to, size, "%02d", t->tm_hour); break;
    case 'I': n = snprintf(to, size, "%02d", hour); break;
    case 'M': n = snprintf(to, size, "%02d", t->tm_min); break;
    case 'S': n = snprintf(to, size, "%02d", t->tm_sec); break;
    case 'p': n = snprintf(to, size, "%s", t->tm_hour < 12 ? "AM" : "PM"); break;
    case 'j': n = snprintf(to, size, "%03d", t->tm_yday + 1); break;
    case 'A': n = snprintf(to, size, "%s", days[t->tm_wday]); break;
    case 'a': n = snprintf(to, size, "%.3s", days[t->tm_wday]); break;
    case 'B': n = snprintf(to, size, "%s", months[t->tm_mon]); break;
    case 'b': n = snprintf(to, size, "%.3s", months[t->tm_mon]); break;
    case 'F': n = snprintf(to, size, "%d-%02d-%02d", t->tm_year + 1900, t->tm_mon + 1, t->tm_mday); break;
    case 'T': n = snprintf(to, size, "%02d:%02d:%02d", t->tm_hour, t->tm_min, t->tm_sec); break;
    case '%': n = snprintf(to, size, "%%"); break;
    default: break;
    }
    return (size_t)n;
}

rein_value rein_strftime(rein_machine *m, const rein_string *format) {
    struct tm t;
    rein_builder b = {0};
    char text[40];
    if (!m->date) return rein_fail_value(m, "the template asks for the date, and none is given");
    if (!read_date(&t, m->date)) return rein_fail_value(m, "the date %.40s is not YYYY-MM-DD", m->date);
    for (size_t i = 0; i < format->length && !m->status; i++) {
        if (format->data[i] != '%' || i + 1 == format->length) {
            rein_put(m, &b, format->data + i, NULL, 1);
            continue;
        }
        const size_t n = put_one(text, sizeof text, format->data[++i], &t);
        if (!n) rein_fail_value(m, "%%%c of strftime_now is not supported", format->data[i]);
        rein_put(m, &b, text, NULL, n);
    }
    return rein_builder_value(m, &b);
}
