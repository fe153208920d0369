/* test_reward_examples.c - the judges of examples/rewards, as a user runs them. What is not there to run one is said. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "rollout/reward_fixture.h"

#define REWARDS "examples/rewards/"

static void need(const char *program) {
    char command[300];
    snprintf(command, sizeof command, "command -v %s > /dev/null", program);
    if (system(command) == 0) return;
    print_message("NOT TESTED: there is no %s here\n", program);
    skip();
}

/* The rewards [n] of a judge, asked twice. */
static void gives(const char *spec, const double *wanted, size_t n) {
    rein_reward *reward = open_with(spec, NULL);
    for (int batch = 0; batch < 2; batch++) {
        give(reward, n);
        for (size_t i = 0; i < n; i++)
            if (fabs(rewards[i] - wanted[i]) > 1e-12) fail_msg("%s: response %zu has the reward %g", spec, i, rewards[i]);
    }
    assert_string_equal(rein_reward_log(reward), "");
    rein_reward_close(reward);
}

static void test_shell(void **state) {
    (void)state;
    respond(0, "q", NULL, "short");
    respond(1, "\"tokens\": 500, \"truncated\": true,", NULL, "a \"prompt\" as \\ nasty \"tokens\": 500, \"truncated\": true,")
        ->tokens = 50;
    respond(2, "q", NULL, "long")->tokens = 51;
    respond(3, "q", NULL, "cut")->truncated = 1;
    gives("sh " REWARDS "judge.sh 50", (const double[]){1, 1, 0, 0}, 4);
    gives("sh " REWARDS "judge.sh", (const double[]){1, 1, 1, 0}, 4);
}

static void test_python(void **state) {
    (void)state;
    need("python3");
    respond(0, "q", "4", "It is <answer> 4\n</answer>.");
    respond(1, "q", "4", "<answer>5</answer>");
    respond(2, "q", "4", "4");
    respond(3, "q", "Grüße", "<answer>Grüße</answer>");
    respond(4, "q", NULL, "<answer></answer>");
    gives("python3 " REWARDS "judge.py", (const double[]){1, 0.1, 0, 1, 0.1}, 5);
}

static void test_rank(void **state) {
    (void)state;
    static const size_t tokens[] = {30, 20, 5, 20, 40, 7};
    static const char *const texts[] = {"so 42", "42!", "41", "= 42", "42", "42"};
    need("python3");
    for (size_t i = 0; i < 6; i++) {
        rein_response *r = respond(i, "q", "42", texts[i]);
        r->tokens = tokens[i], r->group = i / 5;
    }
    gives("group: python3 " REWARDS "rank.py", (const double[]){0.6, 1, 0, 1, 0.4, 1}, 6);
}

static void test_c(void **state) {
    (void)state;
    const char *temporary = getenv("TMPDIR"), *compiler = getenv("CC") ? getenv("CC") : "cc";
    char folder[256], program[300], command[700];
    need(compiler);
    snprintf(folder, sizeof folder, "%s/rein-judge-XXXXXX", temporary ? temporary : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/judge", folder);
    snprintf(command, sizeof command, "%s -O1 -Wall -Wextra -Werror -o '%s' " REWARDS "judge.c -ljansson", compiler, program);
    const int built = system(command) == 0;
    if (built) {
        respond(0, "q", NULL, "all words are new");
        respond(1, "q", NULL, "so so\nso \"so\"");
        respond(2, "q", NULL, "");
        respond(3, "q", NULL, "Grüße Grüße");
        gives(program, (const double[]){1, 0.5, 0, 0.5}, 4);
    }
    unlink(program);
    rmdir(folder);
    assert_true(built);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shell), cmocka_unit_test(test_python), cmocka_unit_test(test_rank),
                                       cmocka_unit_test(test_c)};
    return cmocka_run_group_tests(tests, NULL, forget_responses);
}
