/* test_crash.c - a run survives what happens to machines: power cuts, kills, full and broken disks, at every call to the file system.
 *
 * A scenario (crash_scenarios.h) is something done to a run. It is done again and again, and the n-th call is the last one before the power
 * goes, for every n; then for every outcome that a power cut may have (crash.h) the run is opened and must be as it was before or as it
 * should be after, every checkpoint it lists must be whole and the right one, its history must be whole lines, and it must be possible to go
 * on with it. Each attempt is a process of its own. REIN_TEST_FAST: every seventh call, and fewer outcomes by lot. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "train/crash_scenarios.h"

enum { GOOD = 1 << 16 };

/* What is told across processes. */
static struct shared {
    char problem[900];
    long outcomes, looked;
    long opened, syncs;  /* synchronisations, until the run is open and in all */
    uint64_t good[GOOD]; /* what was looked at and found good: the disk and what was asked of it. 0: free */
} * shared;

static void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(shared->problem, sizeof shared->problem, format, arguments);
    va_end(arguments);
    _exit(1);
}

/* Where the fingerprint is, or would be, among those found good. */
static uint64_t *find_good(uint64_t print) {
    size_t i = (size_t)print % GOOD;
    while (shared->good[i] && shared->good[i] != print) i = (i + 1) % GOOD;
    return &shared->good[i];
}

/* Tries outcomes of a power cut now: all kinds, and `lots` by lot; or with -1 that all is lost. The same disk is looked at once. */
static void cut_power(const scenario *s, int done, int lots) {
    static const char *const names[] = {"all lost", "all there", "names only", "data only", "halves", "zeros", "by lot"};
    const int outcomes = lots < 0 ? 1 : BY_LOT + lots;
    const uint64_t asked = mix((uint64_t)done, s, sizeof *s);
    disk.on = 0;
    for (int i = 0; i < outcomes; i++, shared->outcomes++) {
        const outcome how = i < BY_LOT ? (outcome)i : BY_LOT;
        const unsigned long seed = (unsigned long)(1000 * disk.at + i) + 1000000 * test_seed();
        uint64_t *good = find_good(disk_after(in_folder("after"), how, seed, 0) ^ asked);
        if (*good) continue;
        const uint64_t print = disk_after(in_folder("after"), how, seed, 1) ^ asked;
        const char *problem = problem_of(s, in_folder("after/" RUN_NAME), done);
        rein_remove_all(in_folder("after"), NULL);
        shared->looked++;
        if (problem)
            give_up("%s: power cut %s call %ld, %s (%d): %s", s->title, done ? "after the last," : "at", disk.at, names[how], i,
                    problem);
        *good = print;
    }
    disk.on = 1;
}

static int is_fast(void) { return getenv("REIN_TEST_FAST") != NULL; }

static int lots(void) { return is_fast() ? 2 : 20; }

/* -------------------------------------------------------------------------------------------------------------------- attempts */

enum { DONE = 0, CRASHED = 42 };

static const scenario *current;

static rein_status do_scenario(const scenario *s, rein_run **run, rein_error *err) {
    const rein_status status =
        *run || s->access == NOT_OPENED ? REIN_OK : rein_run_open(run, live(), (rein_run_access)s->access, err);
    shared->opened = disk.syncs;
    return status ? status : s->work(run, err);
}

/* Runs one attempt in a process of its own. Returns DONE or CRASHED, or 1, and shared->problem says what is wrong. */
static int attempt(const scenario *s, void (*act)(void)) {
    int result;
    rein_remove_all(in_folder("live"), NULL);
    rein_remove_all(in_folder("after"), NULL);
    if (__real_mkdir(in_folder("live"), 0777) != 0) fail_msg("no directory");
    s->prepare();
    current = s;
    snprintf(shared->problem, sizeof shared->problem, "%s: call %ld: the process died", s->title, disk.at);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        disk_on(in_folder("live"));
        act();
        _exit(DONE);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    const int fine = WIFEXITED(result) && (WEXITSTATUS(result) == DONE || WEXITSTATUS(result) == CRASHED);
    return fine ? WEXITSTATUS(result) : 1;
}

/* Every call of the scenario is the one that the plan is about, until there is none; or every so many-th. Returns their number, or -1 at
 * the first problem. */
static long everywhere(const scenario *s, plan plan, long stride, void (*act)(void)) {
    disk.plan = plan;
    for (disk.at = stride / 2;; disk.at += stride) {
        const int result = attempt(s, act);
        if (result == DONE) return disk.at / stride;
        if (result != CRASHED) return -1;
    }
}

/* The same for every scenario; prints what was done. */
static void everywhere_in_all(plan plan, void (*act)(void)) {
    long calls = 0;
    shared->outcomes = shared->looked = 0;
    disk.ignored = -1;
    for (size_t i = 0; i < SCENARIOS; i++) {
        const long n = everywhere(&scenarios[i], plan, is_fast() ? 7 : 1, act);
        if (n < 0) fail_msg("%s", shared->problem);
        calls += n;
    }
    print_message("             %ld calls of %d scenarios, %ld outcomes, %ld of them different\n", calls, (int)SCENARIOS,
                  shared->outcomes, shared->looked);
}

/* ------------------------------------------------------------------------------------------------------------------ power cuts */

static void after_power_cut(void) {
    cut_power(current, 0, lots());
    _exit(CRASHED);
}

static void crash_act(void) {
    rein_run *run = NULL;
    rein_error err = {0};
    disk.crashed = after_power_cut;
    if (do_scenario(current, &run, &err) != REIN_OK) give_up("%s: %s", current->title, err.message);
    shared->syncs = disk.syncs;
    cut_power(current, 1, lots());
}

static void test_power_cuts(void **state) {
    (void)state;
    everywhere_in_all(PLAN_CRASH, crash_act);
}

/* 1 if a power cut after the end shows that something is wrong, or one on the way. */
static int is_noticed(const scenario *s) {
    disk.plan = PLAN_NONE;
    return attempt(s, crash_act) != DONE || everywhere(s, PLAN_CRASH, 1, crash_act) < 0;
}

/* The proof that the test would see it: each fsync of a scenario does nothing in turn, and somewhere that must be wrong. */
static void test_every_fsync_is_needed(void **state) {
    (void)state;
    static const size_t chosen[] = {A_CHECKPOINT, A_LINE, A_TEXT, RETENTION};
    long noticed = 0;
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        const scenario *s = &scenarios[chosen[i]];
        disk.plan = PLAN_NONE;
        if (attempt(s, crash_act) != DONE) fail_msg("%s", shared->problem);
        const long first = shared->opened, end = shared->syncs;
        for (disk.ignored = first; disk.ignored < end; disk.ignored++, noticed++)
            if (!is_noticed(s))
                fail_msg("%s: no check notices when fsync %ld of %ld is left out", s->title, disk.ignored - first + 1, end - first);
        disk.ignored = -1;
    }
    print_message("             %ld left out, %ld noticed\n", noticed, noticed);
}

/* ------------------------------------------------------------------------------------------------------ a kill, then a power cut */

/* What the next process is told when it opens the run stays true, and what it does is durable: it may not build on names that the one that
 * was killed made and did not make durable. */
static void after_kill(void) {
    int64_t step;
    char note[REIN_NOTE_SIZE];
    rein_run *run = NULL;
    rein_error err = {0};
    disk_kill_process();
    disk.plan = PLAN_NONE;
    rein_status status = rein_run_open(&run, live(), REIN_RUN_RESUME, &err);
    if (!status) status = rein_run_resume(&step, note, run, &err);
    if (status) give_up("%s: killed at call %ld: %s", current->title, disk.at, err.message);
    scenario told = *current;
    told.before = told.after = step;
    told.lines_before = told.lines_after = run->history_step + 1;
    rein_run_close(run);
    cut_power(&told, 0, lots());
    run = NULL;
    scenario finished = *current;
    finished.lines_after = told.lines_after; /* those of steps to be made again were dropped */
    if (step != current->after || current->before == current->after) {
        status = do_scenario(current, &run, &err);
        if (status) give_up("%s: killed at call %ld, then: %s", current->title, disk.at, err.message);
        if (current->lines_after > current->lines_before) finished.lines_after++;
    }
    cut_power(&finished, 1, lots());
    _exit(CRASHED);
}

static void kill_act(void) {
    rein_run *run = NULL;
    rein_error err = {0};
    disk.crashed = after_kill;
    if (do_scenario(current, &run, &err) != REIN_OK) give_up("%s: %s", current->title, err.message);
}

static void test_kills(void **state) {
    (void)state;
    everywhere_in_all(PLAN_CRASH, kill_act);
}

/* ------------------------------------------------------------------------------------------------------------------ bad disks */

/* What a reader finds while the disk is bad. */
static const char *reader_problem(const scenario *s) {
    rein_run *run;
    json_t *lines;
    if (rein_run_open(&run, live(), REIN_RUN_READ, NULL) != REIN_OK) return s->before < 0 ? NULL : "it cannot be opened";
    const char *problem = steps_problem(s, run, 0);
    if (!problem) problem = text_problem(s, live(), 0);
    if (!problem && disk.code == ENOSPC && s->work != work_retain) problem = leftover_problem(run); /* removing needs no space */
    if (read_history(&lines, run, NULL) != REIN_OK) problem = "the history cannot be read";
    const int64_t n = (int64_t)json_array_size(lines);
    if (n != s->lines_before && n != s->lines_after) problem = "the history is another";
    json_decref(lines);
    rein_run_close(run);
    return problem;
}

/* 1 if the last good checkpoint is the one that the scenario is to bring. */
static int has_arrived(const scenario *s) {
    rein_run *run;
    int64_t step = -1;
    char note[REIN_NOTE_SIZE];
    if (rein_run_open(&run, live(), REIN_RUN_READ, NULL) != REIN_OK) return 0;
    rein_run_last_good(&step, note, run, NULL);
    rein_run_close(run);
    return step == s->after;
}

/* A failure is reported, nothing is lost; when the disk works again, so does the same handle. */
static void fail_act(void) {
    rein_run *run = NULL;
    rein_error err = {0};
    rein_status status = do_scenario(current, &run, &err);
    const int touched = disk.calls > disk.at;
    disk.plan = PLAN_NONE;
    if (status) {
        const char *problem = status == REIN_ENOMEM || !err.message[0] ? "the failure is another" : reader_problem(current);
        if (problem) give_up("%s: call %ld fails (%s): %s", current->title, disk.at, err.message, problem);
        const int arrived = !run && current->before != current->after && has_arrived(current); /* but perhaps not durably */
        status = arrived ? rein_run_open(&run, live(), REIN_RUN_RESUME, &err) : do_scenario(current, &run, &err);
        if (status) give_up("%s: call %ld failed, then all is well, but %s", current->title, disk.at, err.message);
    }
    rein_run_close(run);
    scenario finished = *current;
    if (current->work == work_retain) finished.gone = NO_STEP;           /* when in doubt a checkpoint stays */
    if (current->work == work_resume && resumed_from < current->after) { /* what could not be read was taken for bad */
        finished.before = finished.after = resumed_from;
        finished.always = NO_STEP;
        finished.lines_before = finished.lines_after = resumed_from + 1;
    }
    cut_power(&finished, 1, -1);
    _exit(touched ? CRASHED : DONE);
}

static void test_broken_disk(void **state) {
    (void)state;
    disk.code = EIO;
    everywhere_in_all(PLAN_FAIL_ONCE, fail_act);
    everywhere_in_all(PLAN_FAIL_ON, fail_act);
}

static void test_full_disk(void **state) {
    (void)state;
    disk.code = ENOSPC;
    everywhere_in_all(PLAN_FAIL_ONCE, fail_act);
    everywhere_in_all(PLAN_FAIL_ON, fail_act);
    disk.half = 1;
    everywhere_in_all(PLAN_FAIL_ON, fail_act);
    disk.half = 0;
}

/* The real disk has no part in it: memory is faster. */
static int set_up(void **state) {
    if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED || make_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_cuts), cmocka_unit_test(test_every_fsync_is_needed),
        cmocka_unit_test(test_kills),      cmocka_unit_test(test_broken_disk),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
