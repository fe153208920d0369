/* template_render.c - a conversation rendered: the names that transformers gives to a template, and what came from the data. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/template.h"

static void set(rein_machine *m, const char *name, rein_value value) {
    const rein_value key = rein_literal(m, name);
    if (!m->status) rein_dict_set(m, &m->scope->names, key, value);
}

/* A role that templates know is a word of the format: some make a special token of it, '<|' + role + '|>'. Another one is data. */
static bool is_known_role(const json_t *role) {
    static const char *const known[] = {"system",   "developer", "user",  "assistant",  "tool",
                                        "function", "ipython",   "model", "observation"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (json_is_string(role) && !strcmp(json_string_value(role), known[i])) return true;
    return false;
}

/* transformers gives the reasoning of a message under the names that templates read. */
static void add_reasoning(rein_machine *m, rein_dict *message) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < 3 && !m->status; i++) {
        const rein_dict_entry *found = rein_dict_name(message, names[i], strlen(names[i]));
        if (!found || found->value.kind == REIN_VALUE_NONE) continue;
        const rein_value value = found->value;
        if (!rein_dict_name(message, "thinking", 8)) rein_dict_add(m, message, rein_literal(m, "thinking"), value);
        rein_dict_set(m, message, rein_literal(m, "reasoning_content"), value);
        return;
    }
}

static rein_value messages_value(rein_machine *m, const json_t *messages) {
    const rein_value list = rein_list_new(m, REIN_VALUE_LIST, json_array_size(messages));
    for (size_t i = 0; i < json_array_size(messages) && !m->status; i++) {
        const json_t *message = json_array_get(messages, i), *role = json_object_get(message, "role");
        const rein_value v = rein_value_of_json(m, message, true);
        if (m->status) break;
        if (is_known_role(role)) rein_dict_set(m, v.as.dict, rein_literal(m, "role"), rein_value_of_json(m, role, false));
        add_reasoning(m, v.as.dict);
        rein_list_add(m, list.as.list, v);
    }
    return list;
}

static void set_fields(rein_machine *m, const json_t *object, bool marked) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (!m->status) set(m, key, rein_value_of_json(m, value, marked));
    }
}

/* Later names replace earlier ones: variables of the caller those of the tokenizer. */
static void set_names(rein_machine *m, const rein_template_data *data) {
    set_fields(m, data->tokens, false);
    set(m, "messages", messages_value(m, data->messages));
    set(m, "tools", rein_value_of_json(m, data->tools, true));
    set(m, "documents", rein_value_of_json(m, data->documents, true));
    set(m, "add_generation_prompt", rein_boolean(data->add_generation_prompt));
    set_fields(m, data->variables, true);
}

/* The spans of marked bytes. */
static rein_status find_literals(rein_rendered *rendered, const rein_builder *out, rein_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < out->length; i++) n += out->marks[i] && (!i || !out->marks[i - 1]);
    rendered->literals = malloc((n + 1) * sizeof *rendered->literals);
    if (!rendered->literals) return rein_no_memory(err);
    for (size_t i = 0; i < out->length; i++) {
        if (!out->marks[i]) continue;
        if (!i || !out->marks[i - 1]) rendered->literals[rendered->n_literals++].begin = i;
        rendered->literals[rendered->n_literals - 1].end = i + 1;
    }
    return REIN_OK;
}

rein_status rein_template_render(rein_rendered *rendered, const rein_template *parsed, const rein_template_data *data,
                                 rein_error *err) {
    rein_builder out = {0};
    rein_machine m = {.running = parsed, .out = &out, .main_out = &out, .date = data->date, .err = err};
    rein_scope globals = {0};
    m.memory.limit = REIN_TEMPLATE_MEMORY;
    m.scope = &globals;
    set_names(&m, data);
    rein_run(&m, parsed->body);
    if (!m.status) m.status = rein_text_append(&rendered->text, out.data ? out.data : "", out.length, err);
    if (!m.status) m.status = find_literals(rendered, &out, err);
    if (!m.status) rendered->generated = m.generated, rendered->n_generated = m.n_generated;
    else free(m.generated);
    free(out.data);
    free(out.marks);
    rein_blocks_free(&m.memory);
    if (m.status) rein_rendered_free(rendered);
    return m.status;
}
