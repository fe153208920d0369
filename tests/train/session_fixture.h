/* session_fixture.h - settings for the tests of sessions. Include cmocka.h first. */
#ifndef REIN_TESTS_SESSION_FIXTURE_H
#define REIN_TESTS_SESSION_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "train/session.h"
#include "train/trainer_fixture.h"

/* "name=value name=value" on the model "a". */
static rein_settings *settings_of(const char *text) {
    rein_settings *s = new_settings();
    char copy[1500], *rest = copy, *pair;
    OK(rein_settings_set(s, "model", in_folder("a"), &error_));
    OK(rein_settings_set(s, "learning_rate", "0.02", &error_));
    snprintf(copy, sizeof copy, "%s", text);
    while ((pair = strtok_r(rest, " ", &rest))) {
        char *equals = strchr(pair, '=');
        assert_non_null(equals);
        *equals = 0;
        OK(rein_settings_set(s, pair, equals + 1, &error_));
    }
    return s;
}

#endif
