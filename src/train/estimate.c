/* estimate.c - the memory that a run needs, from its settings and the outline of its model. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/file.h"
#include "model/gguf.h"
#include "model/outline.h"
#include "reward_models.h"
#include "rollout/generator.h"
#include "settings.h"
#include "trainer.h"

/* The program is an allowance for code, threads and small arrays, not a measurement: rein --version alone has 2.5 MB. An open tokenizer has
 * 13 times the bytes of tokenizer.json, measured with Gemma 3's (15 MiB); while it is read the peak is 15 times. */
enum { PROGRAM_BYTES = 8 << 20, TOKENIZER_FACTOR = 13, MODULES = 16 };

typedef struct sizes {
    size_t prompt, completion; /* tokens */
    size_t prompts, samples;   /* of a step */
    size_t active;             /* completions that are sampled at once */
} sizes;

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t blocks_of(size_t tokens) { return (tokens + REIN_KEY_BLOCK - 1) / REIN_KEY_BLOCK; }

static sizes sizes_of(const rein_settings *s, const rein_outline *o, size_t prompt_tokens) {
    const size_t positions = (size_t)o->model.config.max_positions;
    sizes z = {.prompt = least(prompt_tokens, positions), .prompts = (size_t)s->prompts, .samples = (size_t)s->samples};
    z.completion = least((size_t)s->max_tokens, positions - z.prompt);
    z.active = least(z.prompts * z.samples, REIN_MAX_ACTIVE);
    return z;
}

/* -------------------------------------------------------------------------------------------------------------------- sampling */

static size_t keys_of(const rein_outline *o, const sizes *z) {
    const size_t prompts = (z->active + z->samples - 1) / z->samples;
    const size_t of_prompt = blocks_of(z->prompt), of_sample = blocks_of(z->completion);
    const size_t pieces =
        blocks_of(least(prompts * z->prompt, REIN_MAX_PROMPT_TOKENS)); /* before what is behind the window is given back */
    const size_t windows = z->active * rein_outline_window_blocks(o, of_sample);
    return (prompts * of_prompt + z->active * of_sample) * rein_outline_key_part(o, REIN_KEYS_ALL) +
           (prompts * rein_outline_window_blocks(o, of_prompt) + (windows > pieces ? windows : pieces)) *
               rein_outline_key_part(o, REIN_KEYS_WINDOW);
}

/* The largest step: prompts, or the samples that run; both if not all prompts are computed at once. */
static size_t step_of(const rein_outline *o, const sizes *z, int caches) {
    const size_t prompts = (z->active + z->samples - 1) / z->samples, all = prompts * z->prompt;
    const size_t pieces = least(all, REIN_MAX_PROMPT_TOKENS), longest = pieces > z->active ? pieces : z->active;
    const size_t rows = all > REIN_MAX_PROMPT_TOKENS ? pieces + z->active : longest;
    const size_t vocabulary = (size_t)o->model.config.vocab_size, hidden = (size_t)o->model.config.hidden_size;
    const size_t logits = least(z->active, REIN_MAX_LOGITS / vocabulary ? REIN_MAX_LOGITS / vocabulary : 1) * vocabulary;
    return rein_outline_layer(o, rows, z->active, z->prompt + z->completion, caches) +
           ((caches ? 2 : 1) * rows * hidden + z->active * hidden + logits) * sizeof(float) +
           rein_outline_angles(o, z->prompt + z->completion);
}

static void add_sampling(rein_memory_use *use, const rein_settings *s, const rein_outline *o, const sizes *z, int trains) {
    const size_t limit = (size_t)s->activation_cache * 1000000, row = rein_outline_cache_row(o, s->recompute);
    const int caches = trains && limit;
    use->keys = keys_of(o, z);
    use->step = step_of(o, z, caches);
    if (caches)
        use->activation_cache =
            least(least(limit, rein_memory_available() / 4), z->prompts * (z->prompt + z->samples * z->completion) * row);
}

/* -------------------------------------------------------------------------------------------------------------------- training */

/* Where all weights train, shards are computed one after the other and added as soon as they can be (trainer_gradient.c). */
static size_t gradient_buffers(const rein_settings *s, const rein_outline *o, size_t shards) {
    size_t buffers = 1;
    if (!o->full || *s->ptx_data) return shards;
    for (size_t width = 1; width < shards; width *= 2) buffers++;
    return buffers;
}

static void add_training(rein_memory_use *use, const rein_settings *s, const rein_outline *o, const sizes *z) {
    const size_t floats = o->full ? o->numbers : o->adapter_floats;
    const size_t shards = s->shards ? (size_t)s->shards : o->full ? REIN_FULL_SHARDS : REIN_ADAPTER_SHARDS;
    const size_t n = least(z->samples, s->share_limit ? (size_t)s->share_limit : REIN_SHARE_LIMIT);
    const size_t shared = s->no_sharing || n == 1 ? 0 : z->prompt;
    const rein_outline_pass pass = {shared, z->completion + (shared ? 0 : z->prompt), n, s->recompute};
    use->gradients = gradient_buffers(s, o, shards) * floats * sizeof(float);
    use->optimizer = 2 * floats * sizeof(float) + o->adapter_floats * sizeof(float) + o->adapter_packed;
    use->activations = rein_outline_activations(o, &pass);
    if (o->full && (s->has_reference || rein_options_use_reference(&s->objective))) use->reference += o->vectors + o->packed_f32;
}

/* ------------------------------------------------------------------------------------------------------------------- the whole */

static size_t program_of(const char *directory) {
    struct stat about;
    char *path = rein_path_join(directory, "tokenizer.json");
    const size_t bytes = path && !stat(path, &about) && about.st_size > 0 ? (size_t)about.st_size : 0;
    free(path);
    return PROGRAM_BYTES + TOKENIZER_FACTOR * (rein_gguf_is(directory) ? rein_gguf_tokenizer_size(directory) : bytes);
}

static void add_up(rein_memory_use *use) {
    const size_t parts[] = {use->weights,   use->keys,        use->step,      use->activation_cache, use->gradients,
                            use->optimizer, use->activations, use->reference, use->critic,           use->program};
    double total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) total += (double)parts[i];
    use->total = total < (double)(SIZE_MAX / 2) ? (size_t)total : SIZE_MAX / 2;
}

static size_t weights_of(const rein_outline *o, int samples) {
    if (!o->full) return o->vectors + o->packed;
    return o->numbers * sizeof(float) + (samples ? o->packed_f32 : 0);
}

/* The modules of lora_modules point into `text`. */
static void read_modules(rein_lora_options *lora, const char **modules, char *text) {
    lora->modules = modules;
    for (char *rest = text, *name; lora->n_modules < MODULES && (name = strtok_r(rest, ", ", &rest));)
        modules[lora->n_modules++] = name;
}

/* The weights of a teacher. Beside the policy it has the activations of one layer at a time. */
static rein_status add_teacher(rein_memory_use *use, const rein_settings *s, const rein_exec *exec, rein_error *err) {
    rein_outline o = {0};
    const rein_status status = rein_outline_open(&o, s->teacher, NULL, NULL, 0, exec, err);
    if (!status) use->reference += o.vectors + o.packed;
    if (!status) add_up(use);
    rein_outline_close(&o);
    return status;
}

/* A critic trains as a policy of its model does. Its head over the vocabulary, which it does not have, is counted where all weights train. */
static rein_status estimate_critic(size_t *bytes, const rein_settings *s, size_t prompt_tokens, rein_error *err) {
    const int same = !strcmp(s->critic, "same");
    rein_settings *own;
    rein_memory_use use;
    rein_status status = rein_settings_copy(&own, s, err);
    if (status) return status;
    if (!same) status = rein_settings_set(own, "model", s->critic, err);
    if (!status) status = rein_settings_set(own, "quantize", same ? s->quantize : "", err);
    if (!status) status = rein_settings_set(own, "critic", "", err);
    if (!status) status = rein_settings_set(own, "teacher", "", err);
    if (!status) status = rein_options_init(&own->objective, NULL, err); /* a critic has no reference */
    if (!status) status = rein_memory_estimate(&use, own, REIN_MEMORY_TRAINING, prompt_tokens, err);
    if (!status) *bytes = use.gradients + use.optimizer + use.activations + (same && !s->full ? 0 : use.weights);
    rein_settings_free(own);
    return status;
}

rein_status rein_memory_estimate(rein_memory_use *use, const rein_settings *s, rein_memory_parts parts, size_t prompt_tokens,
                                 rein_error *err) {
    const char *modules[MODULES];
    const int trains = parts & REIN_MEMORY_TRAINING, samples = parts & REIN_MEMORY_SAMPLING, full = trains && s->full;
    rein_lora_options lora = {.rank = s->lora_rank};
    rein_exec exec;
    rein_outline o = {0};
    rein_memory_use u = {0};
    rein_status status = rein_exec_resolve(&exec, &(rein_exec){(int)s->threads, s->isa}, REIN_SERIAL, err);
    char *text = strdup(s->lora_modules);
    if (!text) return rein_fail(err, REIN_ENOMEM, "no memory for the names of modules");
    read_modules(&lora, modules, text);
    if (!status)
        status =
            rein_outline_open(&o, s->model, *s->quantize ? s->quantize : NULL, trains && !full ? &lora : NULL, full, &exec, err);
    if (!status) {
        const sizes z = sizes_of(s, &o, prompt_tokens);
        u.weights = weights_of(&o, samples), u.program = program_of(s->model);
        if (samples) add_sampling(&u, s, &o, &z, trains), u.reference += rein_reward_models_bytes(s, &exec);
        if (trains) add_training(&u, s, &o, &z);
        if (trains && *s->critic) status = estimate_critic(&u.critic, s, prompt_tokens, err);
        add_up(&u);
        if (!status) *use = u;
    }
    rein_outline_close(&o);
    if (!status && *s->teacher) status = add_teacher(use, s, &exec, err);
    free(text);
    return status;
}
