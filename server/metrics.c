/* metrics.c - what the server counts, in Prometheus' text form. */
#include <inttypes.h>

#include "parts.h"

static const double BOUNDS[LATENCIES] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120};

void metrics_latency(latency *l, double seconds) {
    size_t i = 0;
    while (i < LATENCIES && seconds > BOUNDS[i]) i++;
    atomic_fetch_add(&l->buckets[i], 1);
    atomic_fetch_add(&l->microseconds, (unsigned long long)(1e6 * (seconds > 0 ? seconds : 0)));
}

static void put_latency(rein_text *out, const char *name, const char *help, latency *l) {
    unsigned long long sum = 0;
    rein_text_format(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (size_t i = 0; i < LATENCIES; i++) {
        sum += atomic_load(&l->buckets[i]);
        rein_text_format(out, "%s_bucket{le=\"%g\"} %llu\n", name, BOUNDS[i], sum);
    }
    sum += atomic_load(&l->buckets[LATENCIES]);
    rein_text_format(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name, sum, name,
                     (double)atomic_load(&l->microseconds) * 1e-6, name, sum);
}

void metrics_write(rein_text *out, server *s) {
    metrics *m = &s->metrics;
    const struct {
        const char *name, *type, *help;
        unsigned long long value;
    } rows[] = {
        {"rein_requests_running", "gauge", "requests that are being sampled", atomic_load(&m->running)},
        {"rein_requests_waiting", "gauge", "requests without a token yet", atomic_load(&m->waiting)},
        {"vllm:num_requests_running", "gauge", "the same, by vLLM's name", atomic_load(&m->running)},
        {"vllm:num_requests_waiting", "gauge", "the same, by vLLM's name", atomic_load(&m->waiting)},
        {"rein_requests_total", "counter", "requests to sample", atomic_load(&m->requests)},
        {"rein_requests_refused_total", "counter", "requests refused because the queue was full", atomic_load(&m->refused)},
        {"rein_requests_failed_total", "counter", "requests that failed while they were sampled", atomic_load(&m->failed)},
        {"rein_requests_cancelled_total", "counter", "requests whose client went away, or that were cut",
         atomic_load(&m->cancelled)},
        {"rein_prompt_tokens_total", "counter", "tokens of prompts", atomic_load(&m->prompt_tokens)},
        {"rein_cached_tokens_total", "counter", "tokens of prompts from the prefix cache", atomic_load(&m->cached_tokens)},
        {"rein_completion_tokens_total", "counter", "sampled tokens", atomic_load(&m->completion_tokens)},
        {"rein_memory_bytes", "gauge", "memory charged for keys and activations", rein_memory_used(s->memory)},
        {"rein_memory_limit_bytes", "gauge", "its ceiling", rein_memory_limit(s->memory)},
        {"rein_text_bytes", "gauge", "memory charged for bodies, prompts and answers", rein_memory_used(s->texts)},
        {"rein_text_limit_bytes", "gauge", "its ceiling", rein_memory_limit(s->texts)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        rein_text_format(out, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", rows[i].name, rows[i].help, rows[i].name, rows[i].type,
                         rows[i].name, rows[i].value);
    if (s->options.run)
        rein_text_format(
            out, "# HELP rein_policy_step step of the newest policy\n# TYPE rein_policy_step gauge\nrein_policy_step %" PRId64 "\n",
            policies_newest(s->policies));
    if (s->training)
        rein_text_format(out,
                         "# HELP rein_training_jobs training jobs queued or at work\n# TYPE rein_training_jobs gauge\n"
                         "rein_training_jobs %zu\n",
                         training_unfinished(s));
    put_latency(out, "rein_first_token_seconds", "from the request to its first token", &m->first_token);
    put_latency(out, "rein_request_seconds", "from the request to its last token", &m->whole);
}
