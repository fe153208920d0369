/* test_reward_program.c - programs as judges: those that answer, and every way not to. The programs are lines of shell. */
#define _DEFAULT_SOURCE /* mkdtemp, usleep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <unistd.h>

#include "rollout/reward.h"
#include "support/folder.h"

#include "rollout/reward_fixture.h"
#include "support/allocation.h"

/* The reward of response "r5" is 5: whoever gets another's shows it. */
#define GRADE "r=${x#*'\"response\": \"r'}; r=${r%%'\"'*}; "
#define JUDGE "while read -r x; do " GRADE "echo \"$r\"; done"

static int set_up(void **state) { return make_folder(state) || setenv("REIN_TEST_FOLDER", folder, 1) != 0; }
static int tear_down(void **state) { return remove_folder(state) + forget_responses(state); }

/* ---- files by which programs and tests talk */
static void make_mark(const char *name) {
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    fclose(file);
}

static void wait_for_mark(const char *name) {
    for (int i = 0; i < 2000 && access(in_folder(name), F_OK) != 0; i++) usleep(10000);
    assert_int_equal(access(in_folder(name), F_OK), 0);
}

static rein_reward *open_slow(const char *command, size_t restarts) {
    return open_with(command, &(rein_reward_options){.timeout = 20, .restarts = restarts});
}

static void gives_indices(size_t n) {
    for (size_t i = 0; i < n; i++)
        if (rewards[i] != (double)i) fail_msg("response %zu has the reward %g", i, rewards[i]);
}

/* A fault: what is said when the program judges three responses, and that it is over then. */
static void faulty(const char *command, double timeout, const char *wanted) {
    rein_reward *reward = open_with(command, &(rein_reward_options){.timeout = timeout});
    respond_many(3);
    fails(reward, 3, REIN_EIO, wanted);
    fails(reward, 3, REIN_EIO, "a program failed before: the rewards can only be closed");
    rein_reward_close(reward);
}

/* ---- answers */
static void test_answers(void **state) {
    (void)state;
    rein_reward *reward = open_slow(JUDGE, 0);
    respond_many(12);
    for (int batch = 0; batch < 3; batch++) { /* one program for all */
        give(reward, 12);
        gives_indices(12);
        assert_memory_equal(components, rewards, 12 * sizeof *rewards);
    }
    assert_string_equal(rein_reward_name(reward, 0), "while");
    assert_string_equal(rein_reward_log(reward), "");
    rein_reward_close(reward);
}

static void test_forms_of_answers(void **state) {
    (void)state;
    static const double wanted[] = {1, -0.5, 0.25, 3, 1000, 0.5, -2, 7, 0.125};
    rein_reward *reward =
        open_slow("read -r x; printf '1.0\\n-0.5\\n .25 \\n+3\\n1e3\\r\\n{\"reward\": 0.5}\\n{\"reward\":-2,\"id\":null}\\r\\n "
                  "{\"why\": \"good\", \"reward\": 7} \\n{\"reward\": 1.25e-1}\\n'; cat > /dev/null",
                  0);
    respond_many(9);
    give(reward, 9);
    assert_memory_equal(rewards, wanted, sizeof wanted);
    rein_reward_close(reward);
}

/* Everything is asked before anything is answered; with ids in any order. */
static void test_any_order(void **state) {
    (void)state;
    rein_reward *reward =
        open_slow("while read -r a; read -r b; read -r c; do echo '{\"id\": 3, \"reward\": 2}'; echo '{\"reward\": 0, "
                  "\"id\": 1}'; echo '{\"id\": 2, \"reward\": 1}'; done",
                  0);
    respond_many(3);
    for (int batch = 0; batch < 2; batch++) {
        give(reward, 3);
        gives_indices(3);
    }
    rein_reward_close(reward);
}

/* ---- what is asked */
static json_t *asked(rein_reward *reward, const char *name) {
    const char *said = rein_reward_log(reward);
    assert_int_equal(strncmp(said, name, strlen(name)), 0);
    json_t *request = json_loadb(said + strlen(name), strcspn(said, "\n") - strlen(name), JSON_REJECT_DUPLICATES, NULL);
    if (!request) fail_msg("not JSON: %s", said);
    return request;
}

static void same_json(json_t *found, const char *wanted) {
    json_t *value = json_loads(wanted, 0, NULL);
    char *text = json_dumps(found, 0);
    assert_non_null(value);
    if (!json_equal(found, value)) fail_msg("%s is asked, not %s", text, wanted);
    free(text);
    json_decref(found);
    json_decref(value);
}

static void test_request(void **state) {
    (void)state;
    rein_reward *reward = open_slow("while read -r x; do printf '%s\\n' \"$x\" >&2; echo 1; done", 0);
    respond(0, "What is\n\"2 + 2\"?", "4", "Grüße,\n4")->truncated = 1;
    give(reward, 1);
    same_json(asked(reward, "while: "),
              "{\"id\": 1, \"prompt\": \"What is\\n\\\"2 + 2\\\"?\", \"answer\": \"4\", \"response\": "
              "\"Grüße,\\n4\", \"tokens\": 10, \"truncated\": true, \"step\": 7, \"group\": 0, \"example\": "
              "{\"prompt\": \"What is\\n\\\"2 + 2\\\"?\", \"answer\": \"4\", \"level\": \"easy\"}}");
    rein_reward_close(reward);
}

static void test_request_of_a_chat(void **state) {
    (void)state;
    const rein_message chat[] = {{"system", "Be brief.", 9}, {"user", "Hi there, and more", 8}};
    rein_reward *reward = open_slow("while read -r x; do printf '%s\\n' \"$x\" >&2; echo 1; done", 0);
    rein_response *r = respond(0, "", NULL, "");
    rein_example_free(&examples[0]);
    examples[0] = (rein_example){.messages = chat, .n_messages = 2, .budget = -1};
    r->text = NULL; /* of nothing */
    r->step = -1;   /* an evaluation */
    give(reward, 1);
    same_json(
        asked(reward, "while: "),
        "{\"id\": 1, \"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"Hi "
        "there\"}], \"answer\": null, \"response\": \"\", \"tokens\": 10, \"truncated\": false, \"step\": null, \"group\": 0, "
        "\"example\": null}");
    rein_reward_close(reward);
}

/* A text that is no UTF-8 is not sent. */
static void test_not_utf8(void **state) {
    (void)state;
    rein_reward *reward = open_slow("cat -", 0);
    respond(0, "q", NULL, "a");
    respond(1, "q", NULL, "ab\xff");
    fails(reward, 2, REIN_EINVAL, "cat: response 2 of 2 (prompt \"q\"): the response is not UTF-8 at byte 2");
    rein_reward_close(reward);
}

/* ---- groups */
static void test_groups(void **state) {
    (void)state;
    rein_reward *reward = open_slow("group: while read -r x; do printf '%s\\n' \"$x\" >&2; echo '{\"rewards\": [0, 1]}'; done", 0);
    respond_many(4);
    give(reward, 4);
    assert_true(rewards[0] == 0 && rewards[1] == 1 && rewards[2] == 0 && rewards[3] == 1);
    same_json(
        asked(reward, "while: "),
        "{\"id\": 1, \"prompt\": \"p0\", \"answer\": null, \"responses\": [{\"response\": \"r0\", \"tokens\": 10, \"truncated\": "
        "false}, {\"response\": \"r1\", \"tokens\": 10, \"truncated\": false}], \"step\": 7, \"group\": 0, \"example\": "
        "{\"prompt\": \"p0\", \"answer\": null, \"level\": \"easy\"}}");
    rein_reward_close(reward);
}

/* Groups of different sizes, answered by id, the other way round. */
static void test_groups_by_id(void **state) {
    (void)state;
    rein_reward *reward = open_slow(
        "group: read -r a; read -r b; echo '{\"id\": 2, \"rewards\": [2]}'; echo '{\"id\": 1, \"rewards\": [0, 1]}'; cat", 0);
    respond_many(3);
    give(reward, 3);
    gives_indices(3);
    rein_reward_close(reward);
}

static void test_groups_that_fail(void **state) {
    (void)state;
    faulty("group: read -r x; echo '{\"rewards\": [1, 2, 3]}'; cat", 20,
           "read: group 1 of 2 (prompt \"p0\"): the answer {\"rewards\": [1, 2, 3]} has 3 rewards, the group has 2 responses");
    faulty("group: read -r x; echo '{\"reward\": 1}'; cat", 20,
           "read: group 1 of 2 (prompt \"p0\"): the answer {\"reward\": 1} has no \"rewards\", a list of 2 numbers");
    faulty("group: read -r x; echo 1; cat", 20,
           "read: group 1 of 2 (prompt \"p0\"): the answer 1 has no \"rewards\", a list of 2 numbers");
    faulty(
        "group: read -r x; echo '{\"rewards\": [1, null]}'; cat", 20,
        "read: group 1 of 2 (prompt \"p0\"): the answer {\"rewards\": [1, null]} has something at rewards[1] that is not a number");
    faulty("group: read -r x; echo '{\"rewards\": [1, 2]}'; exit 4", 20,
           "read: group 2 of 2 (prompt \"p1\"): the program ended with exit status 4");
}

/* ---- faults */
static void test_exits(void **state) {
    (void)state;
    faulty("read -r x; echo 1; read -r x; echo 'out of luck' >&2; exit 3", 20,
           "read: response 2 of 3 (prompt \"p0\"): the program ended with exit status 3; the last line of its log: out of luck");
    faulty("exit 0", 20,
           "exit: response 1 of 3 (prompt \"p0\"): the program ended without answering; it must read requests from standard input "
           "(docs/rewards.md)");
    faulty("kill -9 $$", 20, "kill: response 1 of 3 (prompt \"p0\"): the program was ended by signal 9 (Killed)");
}

static void test_hangs(void **state) {
    (void)state;
    faulty("read -r x; echo 1; sleep 100", 0.2,
           "read: response 2 of 3 (prompt \"p0\"): the program did not answer within 0.2 seconds");
}

static void test_garbage(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"hello\\tworld", "the answer \"hello?world\" is neither a finite number nor a JSON object"},
        {"", "the answer \"\" is neither a finite number nor a JSON object"},
        {"1.0 good", "the answer \"1.0 good\" is neither a finite number nor a JSON object"},
        {"1,5", "the answer \"1,5\" is neither a finite number nor a JSON object"},
        {"[1]", "the answer \"[1]\" is neither a finite number nor a JSON object"},
        {"true", "the answer \"true\" is neither a finite number nor a JSON object"},
        {"nan", "the answer \"nan\" is neither a finite number nor a JSON object"},
        {"-Infinity", "the answer \"-Infinity\" is neither a finite number nor a JSON object"},
        {"1e400", "the answer 1e400 is beyond the range of numbers"},
        {"{\"reward\": NaN}", "the answer {\"reward\": NaN} is not JSON: reward (column 14): NaN is not a finite number: JSON has "
                              "neither NaN nor Infinity"},
        {"{\"reward\": -Infinity}", "the answer {\"reward\": -Infinity} is not JSON: reward (column 12): this is not a finite "
                                    "number: JSON has neither NaN nor Infinity"},
        {"{\"reward\": 1e999}", "the answer {\"reward\": 1e999} is not JSON: reward (column 16): 1e999 is beyond the range of "
                                "numbers (whole numbers have 64 bits, others end at 1.8e308)"},
        {"{\"reward\": 1", "the answer {\"reward\": 1 is not JSON: reward (column 12): the line ends here, inside the JSON: a line "
                           "holds a whole value"},
        {"{\"reward\": 1, \"reward\": 0}", "the answer {\"reward\": 1, \"reward\": 0} is not JSON: reward is given twice, again at "
                                           "column 22"},
        {"{\"reward\": 1} 2", "the answer {\"reward\": 1} 2 is not JSON: column 15: there is text after the JSON value"},
        {"{}", "the answer {} has no \"reward\""},
        {"{\"score\": 1}", "the answer {\"score\": 1} has no \"reward\""},
        {"{\"reward\": null}", "the answer {\"reward\": null} has a \"reward\" that is not a number"},
        {"{\"reward\": \"1\"}", "the answer {\"reward\": \"1\"} has a \"reward\" that is not a number"},
        {"{\"reward\": true}", "the answer {\"reward\": true} has a \"reward\" that is not a number"},
        {"{\"reward\": [1]}", "the answer {\"reward\": [1]} has a \"reward\" that is not a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[200], wanted[400];
        snprintf(command, sizeof command, "read -r x; printf '%%b\\n' '%s'; cat > /dev/null", cases[i][0]);
        snprintf(wanted, sizeof wanted, "read: response 1 of 3 (prompt \"p0\"): %s", cases[i][1]);
        faulty(command, 20, wanted);
    }
}

/* What is shown of a line is short, and cannot do anything to a terminal. */
static void test_long_garbage(void **state) {
    (void)state;
    char wanted[400], x[200];
    memset(x, 'x', sizeof x);
    snprintf(wanted, sizeof wanted,
             "read: response 1 of 3 (prompt \"p0\"): the answer \"?[2J%.112s…\" is neither a finite number nor a JSON object", x);
    faulty("read -r x; printf '\\033[2J'; head -c 100000 /dev/zero | tr '\\0' x; echo; cat", 20, wanted);
}

static void test_ids(void **state) {
    (void)state;
    faulty("read -r x; echo '{\"id\": 4, \"reward\": 1}'; cat > /dev/null", 20,
           "read: response 1 of 3 (prompt \"p0\"): the answer {\"id\": 4, \"reward\": 1} has an id that was not asked for: 1 to 3 "
           "were");
    faulty("read -r x; echo '{\"id\": 0, \"reward\": 1}'; cat > /dev/null", 20,
           "read: response 1 of 3 (prompt \"p0\"): the answer {\"id\": 0, \"reward\": 1} has an id that was not asked for: 1 to 3 "
           "were");
    faulty("read -r x; echo '{\"id\": -1, \"reward\": 1}'; cat > /dev/null", 20,
           "read: response 1 of 3 (prompt \"p0\"): the answer {\"id\": -1, \"reward\": 1} has an invalid id: the id of the "
           "request is needed");
    faulty("read -r x; echo '{\"id\": \"1\", \"reward\": 1}'; cat > /dev/null", 20,
           "read: response 1 of 3 (prompt \"p0\"): the answer {\"id\": \"1\", \"reward\": 1} has an invalid id: the id of the "
           "request is needed");
    faulty("read -r x; echo '{\"id\": 3, \"reward\": 1}'; echo '{\"id\": 3, \"reward\": 1}'; cat > /dev/null", 20,
           "read: response 3 of 3 (prompt \"p1\"): the answer {\"id\": 3, \"reward\": 1} has an id that was answered before");
    faulty("read -r x; echo '{\"id\": 1, \"reward\": 1}'; echo 1; cat > /dev/null", 20,
           "read: response 2 of 3 (prompt \"p0\"): the answer 1 has no id, those before had one: all need one, or none");
    faulty("read -r x; echo '{\"reward\": 1}'; echo '{\"id\": 2, \"reward\": 1}'; cat > /dev/null", 20,
           "read: response 2 of 3 (prompt \"p0\"): the answer {\"id\": 2, \"reward\": 1} has an id, those before had none: all "
           "need one, "
           "or none");
    faulty("read -r x; echo '{\"id\": 2, \"reward\": \"\"}'; cat > /dev/null", 20,
           "read: response 2 of 3 (prompt \"p0\"): the answer {\"id\": 2, \"reward\": \"\"} has a \"reward\" that is not a number");
}

static void test_closes_input(void **state) {
    (void)state;
    faulty("read -r x; exec <&-; echo 1; sleep 100", 20, "read: response 2 of 3 (prompt \"p0\"): the program closed its input");
}

static void test_closes_output(void **state) {
    (void)state;
    faulty("read -r x; echo 1; exec >&-; sleep 100", 20, "read: response 2 of 3 (prompt \"p0\"): the program closed its output");
}

static void test_part_of_a_line(void **state) {
    (void)state;
    faulty("read -r x; echo 1; printf '{\"reward\": 1'", 20,
           "read: response 2 of 3 (prompt \"p0\"): the program ended with exit status 0 in the middle of a line: {\"reward\": 1");
}

static void test_line_too_long(void **state) {
    (void)state;
    faulty("read -r x; head -c 17000000 /dev/zero | tr '\\0' 1; cat > /dev/null", 20,
           "read: response 1 of 3 (prompt \"p0\"): the program wrote a line longer than 16 MB: "
           "11111111111111111111111111111111111111111111111111111111…");
}

static void test_unknown_command(void **state) {
    (void)state;
    rein_reward *reward = open_slow("./rein-no-such-judge", 0);
    respond_many(1);
    assert_int_equal(rein_reward_give(rewards, NULL, reward, responses, 1, &err), REIN_EIO);
    assert_non_null(strstr(err.message,
                           "rein-no-such-judge: response 1 of 1 (prompt \"p0\"): the program ended with exit status 127; "
                           "the last line of its log: "));
    rein_reward_close(reward);
}

/* More answers than requests: seen behind the last one, or before the next batch. */
static void test_too_many_answers(void **state) {
    (void)state;
    faulty("read -r x; read -r x; read -r x; printf '1\\n2\\n3\\n4\\n'; cat > /dev/null", 20,
           "read: the program wrote \"4\" behind its last answer: there are more answers than requests, so rewards may be those of "
           "others");
    rein_reward *reward =
        open_slow("cd \"$REIN_TEST_FOLDER\"; read -r x; echo 1; while [ ! -e go ]; do sleep 0.01; done; echo 2; : > gone; cat", 0);
    respond_many(1);
    give(reward, 1);
    make_mark("go");
    wait_for_mark("gone");
    fails(
        reward, 1, REIN_EIO,
        "cd: the program wrote \"2\" before it was asked: there are more answers than requests, so rewards may be those of others");
    rein_reward_close(reward);
}

/* More of them than a pipe holds. */
static void test_flood_of_answers(void **state) {
    (void)state;
    faulty("read -r x; read -r x; read -r x; yes 1 | head -n 500000", 20,
           "read: the program wrote \"1\" behind its last answer: there are more answers than requests, so rewards may be those of "
           "others");
}

/* Before each answer, more words than a pipe holds. */
static void test_flood_of_words(void **state) {
    (void)state;
    rein_reward *reward =
        open_slow("while read -r x; do head -c 350000 /dev/zero | tr '\\0' w >&2; echo >&2; " GRADE "echo \"$r\"; done", 0);
    respond_many(3);
    give(reward, 3);
    gives_indices(3);
    const char *said = rein_reward_log(reward);
    assert_int_equal(strncmp(said, "while: wwwwwwww", 15), 0);
    assert_int_equal(strlen(said), strlen("while: ") + 4000);
    assert_string_equal(rein_reward_log(reward), "");
    rein_reward_close(reward);
}

/* ---- restarts */

/* Dies behind its second answer, three times; then all is well. Each start and each request leaves a mark. */
#define MORTAL                                                                                                                  \
    "cd \"$REIN_TEST_FOLDER\"; echo >> starts; n=$(wc -l < starts); k=0; while read -r x; do " GRADE                            \
    "echo \"$r\" >> asked; [ \"$n\" -gt 3 ] || [ $k -lt 2 ] || { echo \"death $n\" >&2; exit 9; }; k=$((k + 1)); echo \"$r\"; " \
    "done"

static void forget_marks(void) {
    unlink(in_folder("starts"));
    unlink(in_folder("asked"));
}

static void marks(const char *name, const char *wanted) {
    char text[300];
    FILE *file = fopen(in_folder(name), "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    assert_string_equal(text, wanted);
}

static void test_restarts(void **state) {
    (void)state;
    forget_marks();
    rein_reward *reward = open_slow(MORTAL, 3);
    respond_many(8);
    give(reward, 8);
    gives_indices(8);
    marks("asked", "0 1 2 2 3 4 4 5 6 6 7 "); /* nothing that was answered is asked again */
    assert_string_equal(
        rein_reward_log(reward),
        "cd: death 1\n"
        "cd: restarted (1 of 3): cd: response 3 of 8 (prompt \"p1\"): the program ended with exit status 9; the last "
        "line of its log: death 1\n"
        "cd: death 2\n"
        "cd: restarted (2 of 3): cd: response 5 of 8 (prompt \"p2\"): the program ended with exit status 9; the last "
        "line of its log: death 2\n"
        "cd: death 3\n"
        "cd: restarted (3 of 3): cd: response 7 of 8 (prompt \"p3\"): the program ended with exit status 9; the last "
        "line of its log: death 3\n");
    assert_string_equal(rein_reward_log(reward), "");
    give(reward, 8);
    gives_indices(8);
    rein_reward_close(reward);
}

static void test_restarts_end(void **state) {
    (void)state;
    forget_marks();
    rein_reward *reward = open_slow(MORTAL, 2);
    respond_many(8);
    fails(reward, 8, REIN_EIO,
          "cd: response 7 of 8 (prompt \"p3\"): the program ended with exit status 9; the last line of its log: death 3 (after 2 "
          "restarts)");
    marks("starts", "   ");
    rein_reward_close(reward);
}

/* In a row: a batch that was answered ends the row. This one answers once, so that its second life ends with the first batch; the next batch
 * may begin a third, but not a fourth. */
static void test_restarts_in_a_row(void **state) {
    (void)state;
    rein_reward *reward = open_slow("read -r x; " GRADE "echo \"$r\"", 1);
    respond_many(2);
    give(reward, 2);
    gives_indices(2);
    fails(reward, 2, REIN_EIO,
          "read: response 2 of 2 (prompt \"p0\"): the program ended without answering; it must read requests from standard input "
          "(docs/rewards.md) "
          "(after 1 restart)");
    rein_reward_close(reward);
}

/* Every kind of fault is worth another try: garbage, a hang, an answer too many (after which the whole batch is asked again). */
static void test_restarts_after_all(void **state) {
    (void)state;
    static const char *const bad[] = {"echo garbage", "sleep 100", "exec >&-", "echo '{\"reward\": NaN}'",
                                      "printf '%s\\n' \"$r\" 8"};
    static const char *const said[] = {"restarted (1 of 1): cd: response 2 of 2 (prompt \"p0\"): the answer \"garbage\"",
                                       "restarted (1 of 1): cd: response 2 of 2 (prompt \"p0\"): the program did not answer within",
                                       "restarted (1 of 1): cd: response 2 of 2 (prompt \"p0\"): the program closed its output",
                                       "restarted (1 of 1): cd: response 2 of 2 (prompt \"p0\"): the answer {\"reward\": NaN} is",
                                       "restarted (1 of 1): cd: the program wrote \"8\" behind its last answer"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char command[600];
        forget_marks();
        snprintf(command, sizeof command,
                 "cd \"$REIN_TEST_FOLDER\"; echo >> starts; n=$(wc -l < starts); while read -r x; do %s"
                 "if [ $n = 1 ] && [ $r = 1 ]; then %s; else echo \"$r\"; fi; done",
                 GRADE, bad[i]);
        rein_reward *reward = open_with(command, &(rein_reward_options){.timeout = i == 1 ? 0.2 : 20, .restarts = 1});
        respond_many(2);
        give(reward, 2);
        gives_indices(2);
        const char *told = rein_reward_log(reward);
        if (!strstr(told, said[i])) fail_msg("\"%s\" does not say \"%s\"", told, said[i]);
        rein_reward_close(reward);
    }
}

/* Whether it gives ids is decided in each life. */
static void test_restarts_with_other_habits(void **state) {
    (void)state;
    forget_marks();
    rein_reward *reward =
        open_slow("cd \"$REIN_TEST_FOLDER\"; [ -e starts ] || { : > starts; read -r x; echo '{\"id\": 1, \"reward\": 0}'; "
                  "exit; }; " JUDGE,
                  1);
    respond_many(3);
    give(reward, 3);
    gives_indices(3);
    rein_reward_close(reward);
}

/* ---- several */
static void test_several(void **state) {
    (void)state;
    static const char *const specs[] = {JUDGE, "length:10", "group: while read -r x; do echo '{\"rewards\": [2, 4]}'; done"};
    const rein_reward_options options = {.weights = (const double[]){1, 10, 100}, .timeout = 20};
    rein_reward *reward;
    if (rein_reward_open(&reward, specs, 3, NULL, &options, &err) != REIN_OK) fail_msg("%s", err.message);
    respond_many(4);
    responses[3].tokens = 15;
    give(reward, 4);
    static const double each[] = {0, 1, 2, 1, 1, 4, 2, 1, 2, 3, 0.5, 4}, sums[] = {210, 411, 212, 408};
    assert_memory_equal(components, each, sizeof each);
    assert_memory_equal(rewards, sums, sizeof sums);
    assert_string_equal(rein_reward_name(reward, 2), "while-2");
    rein_reward_close(reward);
}

/* They work at the same time: each waits for a mark that the other makes when it is asked. */
static void test_at_the_same_time(void **state) {
    (void)state;
    static const char *const specs[] = {
        "read -r x; cd \"$REIN_TEST_FOLDER\"; : > a; while [ ! -e b ]; do sleep 0.01; done; echo 1; cat",
        "read -r x; cd \"$REIN_TEST_FOLDER\"; : > b; while [ ! -e a ]; do sleep 0.01; done; echo 2; cat"};
    const rein_reward_options options = {.timeout = 20};
    rein_reward *reward;
    if (rein_reward_open(&reward, specs, 2, NULL, &options, &err) != REIN_OK) fail_msg("%s", err.message);
    respond_many(1);
    give(reward, 1);
    assert_true(components[0] == 1 && components[1] == 2);
    rein_reward_close(reward);
}

/* What a built-in judge lacks is said before a program is asked, and does it no harm. */
static void test_built_in_first(void **state) {
    (void)state;
    static const char *const specs[] = {JUDGE, "exact"};
    rein_reward *reward;
    if (rein_reward_open(&reward, specs, 2, NULL, NULL, &err) != REIN_OK) fail_msg("%s", err.message);
    respond_many(2);
    fails(reward, 2, REIN_EINVAL, "exact: response 1 of 2 (prompt \"p0\"): the example has no answer to compare with");
    for (size_t i = 0; i < 2; i++) examples[i].answer = "r1";
    give(reward, 2);
    assert_true(components[0] == 0 && components[1] == 0 && components[2] == 1 && components[3] == 1);
    rein_reward_close(reward);
}

/* ---- memory */

/* A request of each form and an answer, without a program between. */
static rein_status try_lines(void *context, rein_error *error) {
    const rein_message chat = {"user", "Hi", 2};
    const rein_example example = {.messages = &chat, .n_messages = 1, .answer = "4", .json = context};
    const rein_response two[] = {{.example = &example, .text = "a", .length = 1}, {.example = &example, .text = "b", .length = 1}};
    static const char said[] = "{\"id\": 1, \"rewards\": [1, 2]}";
    rein_answer_line answer = {0};
    char *single, *group = NULL;
    rein_status status = rein_request_line(&single, 1, two, 1, 0, error);
    if (!status) status = rein_request_line(&group, 1, two, 2, 1, error);
    if (!status) status = rein_answer_read(&answer, said, strlen(said), error);
    if (!status) status = rein_answer_rewards(rewards, &answer, 2, 1, error);
    rein_answer_free(&answer);
    free(single);
    free(group);
    return status;
}

static rein_status try_program(void *context, rein_error *error) {
    static const char *const spec = "while read -r x; do echo 1; done";
    rein_reward *reward;
    (void)context;
    rein_status status = rein_reward_open(&reward, &spec, 1, NULL, &(rein_reward_options){.timeout = 20}, error);
    if (!status) status = rein_reward_give(rewards, components, reward, responses, 1, error);
    rein_reward_close(reward);
    return status;
}

static void test_memory(void **state) {
    (void)state;
    if (!can_fail()) skip();
    respond_many(1);
    assert_true(fail_each_allocation(try_lines, examples[0].memory) >= 20);
    once = 1; /* those of the library alone */
    assert_true(fail_each(try_program, NULL) >= 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_forms_of_answers),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_request_of_a_chat),
        cmocka_unit_test(test_not_utf8),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_by_id),
        cmocka_unit_test(test_groups_that_fail),
        cmocka_unit_test(test_exits),
        cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_long_garbage),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_closes_input),
        cmocka_unit_test(test_closes_output),
        cmocka_unit_test(test_part_of_a_line),
        cmocka_unit_test(test_line_too_long),
        cmocka_unit_test(test_unknown_command),
        cmocka_unit_test(test_too_many_answers),
        cmocka_unit_test(test_flood_of_answers),
        cmocka_unit_test(test_flood_of_words),
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_restarts_end),
        cmocka_unit_test(test_restarts_in_a_row),
        cmocka_unit_test(test_restarts_after_all),
        cmocka_unit_test(test_restarts_with_other_habits),
        cmocka_unit_test(test_several),
        cmocka_unit_test(test_at_the_same_time),
        cmocka_unit_test(test_built_in_first),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
