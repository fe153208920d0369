/* answer.c - sampled tokens to the answers of OpenAI's API. A stream and a whole answer are written from the same state of a choice, so that
 * they have the same ids, texts and log-probabilities. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "parts.h"

static void put_head(rein_text *out, const job *j, bool chunk) {
    const int64_t step = policy_step(j->policy);
    const char *object = j->kind == JOB_COMPLETION ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
    rein_text_format(out, "{\"id\": \"%s\", \"object\": \"%s\", \"created\": %" PRId64 ", \"model\": ", j->id, object, j->created);
    rein_json_put_string(out, policy_name(j->policy));
    if (step >= 0) rein_text_format(out, ", \"policy_step\": %" PRId64, step);
}

static void put_ids(rein_text *out, const char *name, const int32_t *ids, size_t n) {
    rein_json_put_name(out, name);
    rein_text_put(out, "[");
    for (size_t i = 0; i < n; i++) rein_text_format(out, "%s%d", i ? ", " : "", (int)ids[i]);
    rein_text_put(out, "]");
}

static void put_usage(rein_text *out, const job *j) {
    rein_text_format(
        out,
        ", \"usage\": {\"prompt_tokens\": %zu, \"completion_tokens\": %zu, \"total_tokens\": %zu, \"prompt_tokens_details\": "
        "{\"cached_tokens\": %zu}}",
        j->prompt_tokens, j->completion_tokens, j->prompt_tokens + j->completion_tokens, j->cached_tokens);
}

static const char *reason(const choice *c, bool calls) {
    if (calls) return "tool_calls";
    return c->finish == REIN_FINISH_END_TOKEN || c->finish == REIN_FINISH_STOP_TEXT ? "stop" : "length";
}

static size_t index_of(const job *j, const choice *c) { return (size_t)(c - j->choices); }

/* What the ids of tool calls begin with. */
static void call_id(char to[80], const job *j, const choice *c) {
    snprintf(to, 80, "call_%s-%zu", strchr(j->id, '-') + 1, index_of(j, c));
}

/* ----------------------------------------------------------------------------------------------------------------- whole answers */

size_t answer_put_message(rein_text *out, const job *j, const choice *c) {
    rein_text calls = {0};
    size_t content = c->text.length, n = 0;
    char id[80];
    call_id(id, j, c);
    const char *text = c->text.data ? c->text.data : "";
    if (j->tools) n = rein_tool_calls_parse(&calls, &content, text, c->text.length, id, false);
    if (!n) content = c->text.length;
    rein_text_put(out, "{\"role\": \"assistant\", \"content\": ");
    if (n && !content) rein_text_put(out, "null");
    else rein_json_put_bytes(out, text, content);
    rein_text_put(out, ", \"refusal\": null");
    if (n) rein_text_put(out, ", \"tool_calls\": ["), rein_text_put(out, calls.data), rein_text_put(out, "]");
    rein_text_put(out, "}");
    out->failed |= calls.failed;
    rein_text_free(&calls);
    return n;
}

static void put_message(rein_text *out, const job *j, const choice *c) {
    rein_text_format(out, "{\"index\": %zu, \"message\": ", index_of(j, c));
    const size_t calls = answer_put_message(out, j, c);
    rein_json_put_name(out, "finish_reason");
    rein_json_put_string(out, reason(c, calls > 0));
}

static void put_text(rein_text *out, const job *j, const choice *c) {
    rein_text text = {0};
    if (j->echo)
        rein_text_put_bytes(&text, j->prompt_texts[index_of(j, c) / j->samples].data,
                            j->prompt_texts[index_of(j, c) / j->samples].length);
    rein_text_put_bytes(&text, c->text.data, c->text.length);
    rein_text_format(out, "{\"index\": %zu, \"text\": ", index_of(j, c));
    rein_json_put_bytes(out, text.data ? text.data : "", text.length);
    rein_json_put_name(out, "finish_reason");
    rein_json_put_string(out, reason(c, false));
    out->failed |= text.failed;
    rein_text_free(&text);
}

/* The step stands in each Choice too: a client that keeps only Choices, such as ART's, sends it back with them to train. */
static void put_choice(rein_text *out, const job *j, const choice *c) {
    const int64_t step = policy_step(j->policy);
    if (j->kind == JOB_CHAT) put_message(out, j, c);
    else put_text(out, j, c);
    logprobs_put(out, j, c);
    if (step >= 0) rein_text_format(out, ", \"policy_step\": %" PRId64, step);
    if (j->return_ids) put_ids(out, "token_ids", c->ids.data, c->ids.count);
    if (j->return_ids && j->kind == JOB_COMPLETION) {
        const rein_ids *prompt = &j->prompts[index_of(j, c) / j->samples];
        put_ids(out, "prompt_token_ids", prompt->data, prompt->count);
    }
    if (j->prompt_logprobs && j->kind == JOB_COMPLETION)
        rein_text_put(out, ", \"prompt_logprobs\": ["), rein_text_put(out, c->prompt_entries.data), rein_text_put(out, "]");
    rein_text_put(out, "}");
    out->failed |= c->text.failed | c->prompt_entries.failed;
}

static void put_answer(rein_text *out, const job *j) {
    put_head(out, j, false);
    rein_text_put(out, ", \"choices\": [");
    for (size_t i = 0; i < j->n_prompts * j->samples; i++) {
        if (i) rein_text_put(out, ", ");
        put_choice(out, j, &j->choices[i]);
    }
    rein_text_put(out, "]");
    put_usage(out, j);
    if (j->return_ids && j->n_prompts == 1) put_ids(out, "prompt_token_ids", j->prompts[0].data, j->prompts[0].count);
    if (j->prompt_logprobs && j->kind == JOB_CHAT)
        rein_text_put(out, ", \"prompt_logprobs\": ["), rein_text_put(out, j->choices[0].prompt_entries.data),
            rein_text_put(out, "]");
    rein_text_put(out, ", \"system_fingerprint\": null}");
}

/* ----------------------------------------------------------------------------------------------------------------------- streams */

static void begin_chunk(job *j, const choice *c, bool first) {
    rein_text *out = &j->chunk;
    rein_text_put(out, "data: ");
    put_head(out, j, true);
    if (first && j->return_ids) {
        const rein_ids *prompt = &j->prompts[index_of(j, c) / j->samples];
        put_ids(out, "prompt_token_ids", prompt->data, prompt->count);
    }
    rein_text_format(out, ", \"choices\": [{\"index\": %zu", index_of(j, c));
}

static void end_chunk(job *j, const char *finish) {
    rein_json_put_name(&j->chunk, "finish_reason");
    if (finish) rein_json_put_string(&j->chunk, finish);
    else rein_text_put(&j->chunk, "null");
    rein_text_put(&j->chunk, "}]}\n\n");
}

static void put_delta(job *j, const choice *c, size_t from, size_t to) {
    const char *text = c->text.data ? c->text.data + from : "";
    rein_text_put(&j->chunk, j->kind == JOB_CHAT ? ", \"delta\": {" : ", \"text\": ");
    if (j->kind == JOB_COMPLETION) rein_json_put_bytes(&j->chunk, text, to - from);
    else {
        if (to > from) rein_text_put(&j->chunk, "\"content\": "), rein_json_put_bytes(&j->chunk, text, to - from);
        rein_text_put(&j->chunk, "}");
    }
}

static void send_role(job *j, choice *c) {
    c->began = true;
    begin_chunk(j, c, true);
    rein_text_put(&j->chunk, ", \"delta\": {\"role\": \"assistant\", \"content\": \"\"}, \"logprobs\": null");
    end_chunk(j, NULL);
}

/* What became final with a token: text, the token's log-probability and id. */
static void send_token(job *j, choice *c, const rein_sampled *token) {
    const size_t ready =
        j->tools && !c->finish ? rein_tool_calls_begin(c->text.data ? c->text.data : "", c->text.length) : c->text.length;
    size_t to = ready > c->sent ? ready : c->sent, content;
    rein_text calls = {0};
    char id[80];
    call_id(id, j, c);
    const size_t n = j->tools && c->finish
                         ? rein_tool_calls_parse(&calls, &content, c->text.data ? c->text.data : "", c->text.length, id, true)
                         : 0;
    if (n) to = content > c->sent ? content : c->sent;
    if (to > c->sent || j->logprobs || j->return_ids) {
        begin_chunk(j, c, j->kind == JOB_COMPLETION && !token->position);
        put_delta(j, c, c->sent, to);
        logprobs_put(&j->chunk, j, c);
        if (j->return_ids) put_ids(&j->chunk, "token_ids", &token->id, 1);
        end_chunk(j, NULL);
    }
    c->sent = to;
    logprobs_clear(c);
    if (n) {
        begin_chunk(j, c, false);
        rein_text_put(&j->chunk, ", \"delta\": {\"tool_calls\": ["), rein_text_put(&j->chunk, calls.data),
            rein_text_put(&j->chunk, "]}, \"logprobs\": null");
        end_chunk(j, NULL);
    }
    if (c->finish) {
        begin_chunk(j, c, false);
        put_delta(j, c, to, to);
        rein_text_put(&j->chunk, ", \"logprobs\": null");
        end_chunk(j, reason(c, n > 0));
    }
    j->chunk.failed |= calls.failed | c->text.failed;
    rein_text_free(&calls);
}

static void flush(job *j, bool done) {
    job_send(j, &j->chunk, done);
    j->chunk.length = 0;
}

/* ------------------------------------------------------------------------------------------------------------------------ tokens */

static size_t bytes_of(const choice *c) {
    return c->ids.count * sizeof *c->ids.data + c->text.length + c->entries.length + c->values.length + c->tops.length +
           c->samplers.length + c->offsets.length + c->prompt_entries.length;
}

static size_t unsent(job *j) {
    pthread_mutex_lock(&j->lock);
    const size_t n = j->out.length - j->taken;
    pthread_mutex_unlock(&j->lock);
    return n;
}

bool answer_token(job *j, const rein_sampled *token) {
    const size_t prompt = token->request - j->first;
    choice *c = &j->choices[prompt * j->samples + token->sample];
    const size_t before = bytes_of(c);
    if (!token->position && !token->sample) j->cached_tokens += token->cached_tokens;
    if (!token->position) logprobs_take_prompt(j, c, &j->prompts[prompt], token);
    c->finish = token->finish;
    if (!j->no_tokens) {
        j->completion_tokens++;
        if (rein_ids_append(&c->ids, token->id, NULL)) c->text.failed = 1;
        rein_text_put_bytes(&c->text, token->text, token->length);
        if (j->logprobs) logprobs_take(j, c, token);
    }
    if (j->stream) {
        if (j->kind == JOB_CHAT && !c->began) send_role(j, c);
        send_token(j, c, token);
        flush(j, false);
    }
    if (token->finish && j->kind == JOB_CHAT) prompts_remember(j->s, j, c);
    j->bytes += bytes_of(c) - before;
    return job_charge(j, j->stream ? unsent(j) : 0);
}

void answer_end(job *j) {
    rein_error err = {0};
    if (!j->stream) put_answer(&j->chunk, j);
    else {
        if (j->include_usage) {
            rein_text_put(&j->chunk, "data: ");
            put_head(&j->chunk, j, true);
            rein_text_put(&j->chunk, ", \"choices\": []");
            put_usage(&j->chunk, j);
            rein_text_put(&j->chunk, "}\n\n");
        }
        rein_text_put(&j->chunk, "data: [DONE]\n\n");
    }
    if (rein_text_status(&j->chunk, &err)) job_fail(j, HTTP_FAILED, &err);
    else flush(j, true);
}
