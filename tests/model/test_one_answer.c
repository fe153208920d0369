/* test_one_answer.c - the promise of model.h, bit for bit: log-probabilities for any number of threads, every instruction set, whatever
 * else is in the batch, with a prompt of their own or a shared one, kept or not, computed again or not; gradients for any number of
 * threads, and for any split of a batch into calls that add to the same gradient. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "model/engine_fixture.h"
#include "model/safetensors.h"
#include "support/folder.h"
#include "support/random.h"

/* ---- models: each fixture as it is stored, and those in f32 also in bf16 */
static void copy_config(const char *name) {
    json_t *config = read_json(fixture(name, "config.json"));
    assert_int_equal(json_dump_file(config, in_folder("config.json"), 0), 0);
    json_decref(config);
}

/* Writes the fixture with the upper halves of its floats: bf16. */
static void write_bf16(const char *name) {
    rein_tensors *tensors;
    OK(rein_tensors_open(&tensors, fixture(name, ""), &error_));
    const size_t n = rein_tensors_count(tensors);
    rein_tensor *list = some(n, sizeof *list);
    for (size_t i = 0; i < n; i++) {
        list[i] = *rein_tensors_at(tensors, i);
        const float *from = list[i].data;
        const size_t count = list[i].bytes / sizeof *from;
        uint16_t *to = some(count, sizeof *to);
        for (size_t k = 0; k < count; k++) memcpy(&to[k], (const char *)&from[k] + 2, 2);
        list[i].data = to, list[i].bytes = count * sizeof *to, list[i].dtype = REIN_TENSOR_BF16;
    }
    OK(rein_tensors_write(in_folder("model.safetensors"), list, n, NULL, 0, &error_));
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)list[i].data);
    free(list);
    rein_tensors_close(tensors);
    copy_config(name);
}

static void remove_bf16(void) { remove(in_folder("model.safetensors")), remove(in_folder("config.json")); }

/* ---- batches: trees of a prompt, three responses, and what continues the last of them */
static size_t between(size_t low, size_t high) { return low + below(high - low + 1); }

static void random_segment(batch *b, int64_t parent, size_t length, size_t vocabulary) {
    add_segment(b, parent);
    for (size_t i = 0; i < length; i++)
        add_token(b, (int32_t)between(0, vocabulary - 1), between(0, 9) > 0, coefficient_c(tokens_of(b)),
                  coefficient_e(tokens_of(b)), -1);
}

enum { IN_TREE = 5 }; /* segments */
static batch *random_trees(size_t trees, size_t positions, size_t vocabulary) {
    batch *b = batch_new();
    stream = trees * 1000003 + positions * 1009 + vocabulary;
    for (size_t t = 0; t < trees; t++) {
        const int64_t root = (int64_t)b->n;
        random_segment(b, -1, t ? between(positions / 4, positions / 2) : 1, vocabulary); /* and a prompt of one token */
        for (int response = 0; response < 3; response++) random_segment(b, root, between(1, positions / 4), vocabulary);
        random_segment(b, root + 3, between(1, positions / 4), vocabulary);
    }
    return b;
}

/* ---- comparing */
static void same(const float *a, const float *b, size_t n, const char *what, const char *where) {
    if (!memcmp(a, b, n * sizeof *a)) return;
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a)) fail_msg("%s: %s[%zu] is %a and %a", where, what, i, (double)a[i], (double)b[i]);
}

static void near_norm(const float *a, const float *b, size_t n, const char *what, const char *where) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)a[i], y = (double)b[i];
        difference += (x - y) * (x - y), norm += y * y;
    }
    if (!(difference <= 1e-12 * norm)) fail_msg("%s: %s differ by %.2g of the norm", where, what, sqrt(difference / norm));
}

/* A tied embedding is the exception when a batch is split: a call adds what the head says of all its trees, then what their first
 * layer says; several calls take turns. It is the same but for rounding. */
static void same_gradient(const rein_policy *policy, pass *a, pass *b, int split, const char *where) {
    const size_t n = rein_parameter_count(policy->model, policy->adapter);
    const int tied = rein_model_describe(policy->model).tied;
    rein_parameter *list = some(n, sizeof *list);
    rein_parameters(list, (rein_model *)(uintptr_t)policy->model, (rein_adapter *)(uintptr_t)policy->adapter, a->gradient);
    for (size_t p = 0; p < n; p++) {
        const float *other = b->gradient + (list[p].gradient - a->gradient);
        const int is_tied = tied && !strcmp(list[p].name, "model.embed_tokens.weight");
        (split && is_tied ? near_norm : same)(list[p].gradient, other, list[p].size, list[p].name, where);
    }
    free(list);
}

static void same_pass(const rein_policy *policy, pass *a, pass *b, const char *where) {
    assert_int_equal(a->tokens, b->tokens);
    same(a->log_probs, b->log_probs, a->tokens, "log_probs", where);
    same(a->entropies, b->entropies, a->tokens, "entropies", where);
    if (a->gradient && b->gradient) same_gradient(policy, a, b, 0, where);
}

/* The wanted tokens of `part`, made from another batch, have the bits that they have there. */
static void same_tokens(const pass *whole, const pass *of_part, const batch *part, const char *where) {
    for (size_t t = 0; t < of_part->tokens; t++) {
        if (!part->wanted[t]) continue;
        same(&of_part->log_probs[t], &whole->log_probs[part->source[t]], 1, "log_prob", where);
        same(&of_part->entropies[t], &whole->entropies[part->source[t]], 1, "entropy", where);
    }
}

/* ---- for each model: what trains its weights, and what trains its adapter */
static const rein_forward_options KEEP = {.keep = 1, .entropy_gradient = 1};
typedef void with_policy(const rein_policy *policy, const batch *b, pass *reference, const char *where);

/* The reference: one thread. */
static void check_with(with_policy *check, const rein_policy *policy, size_t trees, size_t positions, const char *where) {
    batch *b = random_trees(trees, positions, (size_t)rein_model_describe(policy->model).vocabulary);
    rein_activations *activations = open_activations(1, REIN_ISA_BEST);
    pass reference = {0};
    run_pass(&reference, activations, policy, b, &KEEP);
    rein_activations_close(activations);
    check(policy, b, &reference, where);
    pass_free(&reference);
    free(b);
}

static void check_model(with_policy *check, const char *directory, const char *adapter_of, size_t trees, size_t positions,
                        const char *where) {
    char name[200];
    for (int train = 0; train < 2; train++) {
        rein_model *model = open_model(directory, train);
        rein_adapter *adapter = NULL;
        if (!train && adapter_of) adapter = open_adapter(model, adapter_of);
        else if (!train) OK(rein_adapter_new(&adapter, model, &(rein_lora_options){.rank = 4, .alpha = 8, .seed = 1}, &error_));
        const rein_policy policy = {model, adapter, 0.8};
        snprintf(name, sizeof name, "%s, %s", where, train ? "all weights" : "adapter");
        check_with(check, &policy, trees, positions, name);
        rein_adapter_close(adapter);
        rein_model_close(model);
    }
}

static void for_all(with_policy *check) {
    const size_t trees = getenv("REIN_TEST_FAST") ? 2 : 12;
    for (size_t f = 0; f < COUNT(fixture_names); f++) {
        const char *name = fixture_names[f];
        char where[100];
        const size_t positions = strcmp(name, "llama3_rope") ? 64 : 128; /* beyond a block of 64 keys */
        rein_model *model = open_model(fixture(name, ""), 0);
        const int is_f32 = !strcmp(rein_model_describe(model).type, "F32");
        rein_model_close(model);
        char directory[4096];
        snprintf(directory, sizeof directory, "%s", fixture(name, ""));
        check_model(check, directory, name, trees, positions, name);
        if (!is_f32) continue;
        write_bf16(name);
        snprintf(where, sizeof where, "%s in bf16", name);
        check_model(check, folder, name, trees, positions, where);
        remove_bf16();
    }
}

/* ---- what may not matter */
static void vary_exec(const rein_policy *policy, const batch *b, pass *reference, const char *where) {
    static const rein_exec execs[] = {{2, REIN_ISA_BEST}, {3, REIN_ISA_BEST}, {1, REIN_ISA_REF}, {3, REIN_ISA_REF}};
    batch *small = batch_part(b, 0, IN_TREE); /* plain C is slow */
    rein_activations *activations = open_activations(1, REIN_ISA_BEST);
    pass of_small = {0};
    char name[300];
    run_pass(&of_small, activations, policy, small, &KEEP);
    rein_activations_close(activations);
    for (size_t e = 0; e < COUNT(execs); e++) {
        const int plain = execs[e].isa == REIN_ISA_REF;
        pass p = {0};
        snprintf(name, sizeof name, "%s, %d threads, %s", where, execs[e].threads, rein_isa_name(execs[e].isa));
        activations = open_activations(execs[e].threads, execs[e].isa);
        run_pass(&p, activations, policy, plain ? small : b, &KEEP);
        same_pass(policy, &p, plain ? &of_small : reference, name);
        pass_free(&p);
        rein_activations_close(activations);
    }
    pass_free(&of_small);
    free(small);
}

/* Kept or not, computed again or not, with entropies or without, in memory that another batch was in. */
static void vary_options(const rein_policy *policy, const batch *b, pass *reference, const char *where) {
    const rein_forward_options again = {.keep = 1, .entropy_gradient = 1, .recompute = 1}, no_entropy = {.keep = 1};
    const rein_tokens t = tokens(b);
    rein_activations *activations = open_activations(2, REIN_ISA_BEST);
    pass recomputed = {0}, not_kept = {0}, kept = {0}, other = {0};
    run_pass(&recomputed, activations, policy, b, &again);
    same_pass(policy, &recomputed, reference, where);
    run_pass(&not_kept, activations, policy, b, NULL);
    same_pass(policy, &not_kept, reference, where);
    OK(rein_forward(not_kept.log_probs, NULL, activations, policy, &t, &no_entropy, &error_));
    same(not_kept.log_probs, reference->log_probs, reference->tokens, "log_probs without entropies", where);
    batch *small = batch_part(b, IN_TREE, 2 * IN_TREE);
    run_pass(&other, activations, policy, small, &KEEP);
    run_pass(&kept, activations, policy, b, &KEEP);
    same_pass(policy, &kept, reference, where);
    free(small);
    pass_free(&recomputed), pass_free(&not_kept), pass_free(&kept), pass_free(&other);
    rein_activations_close(activations);
}

/* Responses alone, a token here and there, one, none: a pass that is not kept leaves rows that are not wanted out of its last layer. */
static void vary_wanted(const rein_policy *policy, const batch *b, pass *reference, const char *where) {
    rein_activations *activations = open_activations(2, REIN_ISA_BEST);
    const rein_tokens all = tokens(b);
    uint8_t *wanted = some(tokens_of(b), 1);
    float *log_probs = some(tokens_of(b), sizeof *log_probs);
    rein_tokens part = all;
    part.wanted = wanted;
    for (int kind = 0; kind < 4; kind++) {
        for (size_t s = 0; s < all.n; s++)
            for (size_t t = all.offsets[s]; t < all.offsets[s + 1]; t++) {
                const int chosen[] = {s % IN_TREE != 0, between(0, 19) == 0, t + 1 == tokens_of(b), 0};
                wanted[t] = b->wanted[t] && chosen[kind];
            }
        OK(rein_forward(log_probs, NULL, activations, policy, &part, NULL, &error_));
        for (size_t t = 0; t < tokens_of(b); t++)
            same(&log_probs[t], wanted[t] ? &reference->log_probs[t] : &(const float){0}, 1, "log_prob", where);
    }
    free(wanted), free(log_probs);
    rein_activations_close(activations);
}

/* Alone, in trees alone, with a prompt of its own, among others in another order: the log-probs of a token. */
static void vary_company(const rein_policy *policy, const batch *b, pass *reference, const char *where) {
    rein_activations *activations = open_activations(2, REIN_ISA_BEST);
    batch *apart = batch_apart(b);
    pass p = {0};
    run_pass(&p, activations, policy, apart, NULL);
    same_tokens(reference, &p, apart, where);
    for (size_t s = 0; s < apart->n; s++) {
        batch *alone = batch_part(apart, s, s + 1);
        for (size_t t = 0; t < tokens_of(alone); t++) alone->source[t] = apart->source[alone->source[t]];
        run_pass(&p, activations, policy, alone, NULL);
        same_tokens(reference, &p, alone, where);
        free(alone);
    }
    batch *reversed = batch_new();
    for (size_t first = b->n; first > 0; first -= IN_TREE)
        for (size_t s = first - IN_TREE; s < first; s++) {
            add_segment(reversed, b->parents[s] < 0 ? -1 : (int64_t)(b->n - first) + b->parents[s] - (int64_t)(first - IN_TREE));
            copy_segment(reversed, b, s, 1);
        }
    run_pass(&p, activations, policy, reversed, NULL);
    same_tokens(reference, &p, reversed, where);
    pass_free(&p);
    free(reversed), free(apart);
    rein_activations_close(activations);
}

/* Calls over some trees each, adding to the same gradient in the order of the trees. */
static void vary_split(const rein_policy *policy, const batch *b, pass *reference, const char *where) {
    static const size_t trees[][4] = {{1, 1, 1, 1}, {1, 2, 1, 3}, {5, 1, 2, 1}};
    char name[300];
    for (size_t k = 0; k < COUNT(trees); k++) {
        rein_activations *activations = open_activations((int)k + 1, REIN_ISA_BEST);
        pass p = {0};
        size_t calls = 0;
        for (size_t first = 0; first < b->n; calls++) {
            const size_t last = first + IN_TREE * trees[k][calls % 4];
            batch *part = batch_part(b, first, last < b->n ? last : b->n);
            run_pass(&p, activations, policy, part, &KEEP);
            same_tokens(reference, &p, part, where);
            free(part);
            first = last;
        }
        snprintf(name, sizeof name, "%s, in %zu calls", where, calls);
        same_gradient(policy, &p, reference, 1, name);
        pass_free(&p);
        rein_activations_close(activations);
    }
}

static void test_exec(void **state) {
    (void)state;
    for_all(vary_exec);
}
static void test_options(void **state) {
    (void)state;
    for_all(vary_options);
}
static void test_wanted(void **state) {
    (void)state;
    for_all(vary_wanted);
}
static void test_company(void **state) {
    (void)state;
    for_all(vary_company);
}
static void test_split(void **state) {
    (void)state;
    for_all(vary_split);
}

/* A model that others trained, where it is at hand: several blocks of keys, more than one piece of everything. */
static void test_stories(void **state) {
    (void)state;
    static with_policy *const checks[] = {vary_exec, vary_options, vary_wanted, vary_company, vary_split};
    if (!have_stories()) skip();
    const size_t positions = getenv("REIN_TEST_FAST") ? 100 : 200;
    for (size_t c = 0; c < COUNT(checks); c++) check_model(checks[c], stories(), NULL, 3, positions, "stories260K");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exec),    cmocka_unit_test(test_options), cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_company), cmocka_unit_test(test_split),   cmocka_unit_test(test_stories),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
