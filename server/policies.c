/* policies.c - the policies that clients can name, and the adapters behind them.
 *
 * An adapter that a request uses stays open until its last request ends. Of the adapters of steps, those used last stay open besides, at most
 * --adapter-cache of them; others are opened again when they are asked for. Where all weights train, a step is a whole model: only the newest
 * one stays open.
 *
 * The thread that computes gives policies back, so nothing is read from the disk below the lock: a second one, taken before it, is for that. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "rein/train.h"

struct policy {
    char *name;
    int64_t step;          /* -1: none */
    rein_adapter *adapter; /* NULL: the model itself */
    rein_model *model;     /* of a step of a run in which all weights train; NULL: the server's */
    size_t users;
    bool named; /* loaded by name: it stays open until it is unloaded */
    bool gone;  /* unloaded: it is closed after its last request */
    uint64_t used;
    policy *next;
};

struct policies {
    const server_options *options;
    pthread_mutex_t opening; /* one policy is opened at a time */
    pthread_mutex_t lock;    /* of what follows */
    policy base;
    policy *open;
    uint64_t clock;
    int64_t newest; /* step of the newest policy; -1: the model itself */
    char *art;      /* ENTITY/PROJECT/NAME that ART's client registered; NULL: none */
};

const rein_model *policy_model(const policies *p, const policy *found) { return found->model ? found->model : p->options->model; }
const rein_adapter *policy_adapter(const policy *found) { return found->adapter; }
const char *policy_name(const policy *found) { return found->name; }
int64_t policy_step(const policy *found) { return found->step; }

static void close_policy(policies *p, policy *old) {
    policy **at = &p->open;
    while (*at != old) at = &(*at)->next;
    *at = old->next;
    rein_adapter_close(old->adapter);
    rein_model_close(old->model);
    free(old->name);
    free(old);
}

/* Closes the adapters of steps that are too many, the one unused for longest first. */
static void close_unused(policies *p) {
    for (;;) {
        size_t open = 0;
        policy *oldest = NULL;
        for (policy *at = p->open; at; at = at->next) {
            if (at->named || (at->model && at->step == p->newest)) continue;
            open++;
            if (!at->users && (!oldest || at->used < oldest->used)) oldest = at;
        }
        if (!oldest || (open <= p->options->adapter_cache && !oldest->model)) return;
        close_policy(p, oldest);
    }
}

static const char ART_PREFIX[] = "wandb-artifact:///";

bool policies_is_art(const char *name) { return !strncmp(name, ART_PREFIX, strlen(ART_PREFIX)); }

static policy *find_open(policies *p, const char *name) {
    for (policy *at = p->open; at; at = at->next)
        if (!at->gone && !strcmp(at->name, name)) return at;
    return NULL;
}

/* From the directory of an adapter, or of a whole model. Not below the lock. */
static rein_status open_policy(policy **opened, const policies *p, const char *name, const char *directory, bool whole,
                               rein_error *err) {
    const rein_model_options how = {.exec = p->options->exec};
    policy *made = calloc(1, sizeof *made);
    if (!made || !(made->name = strdup(name))) {
        free(made);
        return rein_fail(err, REIN_ENOMEM, "no memory for a policy");
    }
    const rein_status status = whole ? rein_model_open(&made->model, directory, &how, err)
                                     : rein_adapter_open(&made->adapter, p->options->model, directory, err);
    if (status) {
        free(made->name);
        free(made);
        return status;
    }
    made->step = -1;
    *opened = made;
    return REIN_OK;
}

/* Below the lock. */
static void add_open(policies *p, policy *made) { made->next = p->open, p->open = made; }

/* A step of the run, verified and opened. Not below the lock. */
static rein_status open_step(policy **opened, const policies *p, const char *name, int64_t step, int64_t newest, rein_error *err) {
    rein_policy_files files = {0};
    rein_text path = {0};
    rein_text_format(&path, "%s@%" PRId64, p->options->run, step);
    rein_status status = rein_text_status(&path, err);
    if (!status) status = rein_policy_find(&files, path.data, err);
    if (status && status != REIN_ENOMEM) {
        const rein_error why = *err;
        status = rein_fail_at(err, REIN_END, "model", -1, "is %s, which cannot be served: %.300s", name, why.message);
    }
    if (!status && p->options->full && step != newest)
        status = rein_fail_at(err, REIN_END, "model", -1,
                              "is %s: all weights of this run train, so only its newest policy and base are served", name);
    if (!status) status = open_policy(opened, p, name, files.adapter ? files.adapter : files.model, !files.adapter, err);
    if (!status) (*opened)->step = step;
    rein_policy_files_free(&files);
    rein_text_free(&path);
    return status;
}

static rein_status not_found(const policies *p, const char *name, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    return rein_fail_at(err, REIN_END, "model", -1, "is %s: there is no such model; GET /v1/models lists them, such as \"%s\"",
                        rein_json_quote(shown, name), p->options->name);
}

/* The step in "NAME@STEP", or -1. */
static int64_t step_in(const policies *p, const char *name) {
    const size_t length = strlen(p->options->name);
    if (!p->options->run || strncmp(name, p->options->name, length) != 0 || name[length] != '@') return -1;
    const char *digits = name + length + 1;
    if (!*digits || strlen(digits) > 15 || strspn(digits, "0123456789") != strlen(digits)) return -1;
    return strtoll(digits, NULL, 10);
}

static void name_step(char name[PATH_MAX], const policies *p, int64_t step) {
    snprintf(name, PATH_MAX, "%s@%" PRId64, p->options->name, step);
}

/* The step in "wandb-artifact:///ENTITY/PROJECT/NAME:stepN", as ART's client names what it registered; the newest without ":stepN"; -1: the
 * name is another. */
static int64_t step_in_art(const policies *p, const char *name) {
    const size_t length = p->art ? strlen(p->art) : 0;
    if (!policies_is_art(name) || !length) return -1;
    const char *rest = name + strlen(ART_PREFIX);
    if (strncmp(rest, p->art, length) != 0) return -1;
    if (!rest[length]) return p->newest;
    if (strncmp(rest + length, ":step", 5) != 0) return -1;
    const char *digits = rest + length + 5;
    if (!*digits || strlen(digits) > 15 || strspn(digits, "0123456789") != strlen(digits)) return -1;
    return strtoll(digits, NULL, 10);
}

/* What a name stands for: *found, or if that is NULL a *step of the run, which is to be opened. Below the lock. */
static rein_status look_up(policy **found, int64_t *step, policies *p, const char *name, rein_error *err) {
    const server_options *o = p->options;
    char of_step[PATH_MAX];
    if ((*found = find_open(p, name))) return REIN_OK;
    if (!strcmp(name, o->name) && o->run) *step = p->newest;
    else if (!strcmp(name, o->name) || !strcmp(name, "base") || !strcmp(name, o->model_name)) {
        *found = &p->base;
        return REIN_OK;
    } else if ((*step = step_in(p, name)) < 0 && (*step = step_in_art(p, name)) < 0) return not_found(p, name, err);
    name_step(of_step, p, *step);
    *found = find_open(p, of_step);
    return REIN_OK;
}

/* Below the lock. */
static void use(policies *p, policy *found) {
    found->users++, found->used = ++p->clock;
    close_unused(p);
}

/* Opens the step that the name stands for, unless another thread has meanwhile. The lock is not held. */
static rein_status find_or_open(policy **found, policies *p, const char *name, rein_error *err) {
    int64_t step, newest;
    char of_step[PATH_MAX];
    pthread_mutex_lock(&p->opening);
    pthread_mutex_lock(&p->lock);
    rein_status status = look_up(found, &step, p, name, err);
    newest = p->newest;
    if (!status && !*found) {
        pthread_mutex_unlock(&p->lock);
        name_step(of_step, p, step);
        status = open_step(found, p, of_step, step, newest, err);
        pthread_mutex_lock(&p->lock);
        if (!status) add_open(p, *found);
    }
    if (!status) use(p, *found);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->opening);
    return status;
}

rein_status policies_find(policy **found, policies *p, const char *name, rein_error *err) {
    int64_t step;
    *found = NULL;
    pthread_mutex_lock(&p->lock);
    const rein_status status = look_up(found, &step, p, name, err);
    if (*found) use(p, *found);
    pthread_mutex_unlock(&p->lock);
    return status || *found ? status : find_or_open(found, p, name, err);
}

void policies_hold(policies *p, policy *found) {
    pthread_mutex_lock(&p->lock);
    found->users++;
    pthread_mutex_unlock(&p->lock);
}

void policies_give(policies *p, policy *found) {
    if (!found) return;
    pthread_mutex_lock(&p->lock);
    found->users--;
    if (found != &p->base && found->gone && !found->users) close_policy(p, found);
    close_unused(p);
    pthread_mutex_unlock(&p->lock);
}

rein_status policies_publish(policies *p, int64_t step, rein_error *err) {
    policy *opened;
    char name[PATH_MAX];
    rein_status status = REIN_OK;
    name_step(name, p, step);
    pthread_mutex_lock(&p->opening);
    pthread_mutex_lock(&p->lock);
    if ((opened = find_open(p, name))) opened->users++; /* it stays open */
    pthread_mutex_unlock(&p->lock);
    const bool found = opened;
    if (!found) status = open_step(&opened, p, name, step, step, err);
    pthread_mutex_lock(&p->lock);
    if (!status) {
        if (found) opened->users--;
        else add_open(p, opened);
        p->newest = step, opened->used = ++p->clock;
    }
    close_unused(p);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->opening);
    return status;
}

int64_t policies_newest(policies *p) {
    pthread_mutex_lock(&p->lock);
    const int64_t newest = p->newest;
    pthread_mutex_unlock(&p->lock);
    return newest;
}

int policies_register(policies *p, const char *art, rein_error *err) {
    int status = HTTP_OK;
    pthread_mutex_lock(&p->lock);
    if (!art || !p->art) {
        free(p->art);
        p->art = art ? strdup(art) : NULL;
        if (art && !p->art) status = HTTP_FAILED, rein_fail(err, REIN_ENOMEM, "no memory for a name");
    } else if (strcmp(p->art, art) != 0) {
        status = HTTP_CONFLICT;
        rein_fail_at(err, REIN_EINVAL, "name", -1, "is %.150s: this server trains one model, and %.150s was registered first", art,
                     p->art);
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* 1 if `directory`, followed through links, lies below `root`. */
static bool lies_below(const char *directory, const char *root) {
    char *inside = realpath(directory, NULL), *outside = realpath(root, NULL);
    const size_t length = outside ? strlen(outside) : 0;
    /* "/" ends with the slash that others need */
    const bool below = inside && outside && !strncmp(inside, outside, length) && (length == 1 || inside[length] == '/');
    free(inside);
    free(outside);
    return below;
}

/* Whether an adapter may have this name; `field` is what it came in. Below the lock. */
static rein_status check_name(policies *p, const char *field, const char *name, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    const server_options *o = p->options;
    if (!*name || strchr(name, '@') || !strcmp(name, "base") || !strcmp(name, o->name) || !strcmp(name, o->model_name))
        return rein_fail_at(err, REIN_EINVAL, field, -1, "is %s: a name without @ that no other model has is needed",
                            rein_json_quote(shown, name));
    if (find_open(p, name))
        return rein_fail_at(err, REIN_EINVAL, field, -1, "is %s, which is loaded already: unload it first",
                            rein_json_quote(shown, name));
    return REIN_OK;
}

static rein_status load(policies *p, const char *field, const char *name, const char *directory, rein_error *err) {
    policy *opened;
    pthread_mutex_lock(&p->opening);
    pthread_mutex_lock(&p->lock);
    rein_status status = check_name(p, field, name, err);
    pthread_mutex_unlock(&p->lock);
    if (!status) status = open_policy(&opened, p, name, directory, false, err);
    if (!status) {
        opened->named = true;
        pthread_mutex_lock(&p->lock);
        add_open(p, opened);
        pthread_mutex_unlock(&p->lock);
    }
    pthread_mutex_unlock(&p->opening);
    return status;
}

rein_status policies_allow_path(const policies *p, const char *field, const char *directory, rein_error *err) {
    const char *root = p->options->adapter_root;
    if (!root)
        return rein_fail_at(err, REIN_EINVAL, field, -1,
                            "is given, but this server loads no adapters: start it with --adapter-root DIR");
    if (!lies_below(directory, root))
        return rein_fail_at(err, REIN_EINVAL, field, -1, "does not name an existing directory below --adapter-root");
    return REIN_OK;
}

rein_status policies_load(policies *p, const char *name, const char *directory, rein_error *err) {
    const rein_status status = policies_allow_path(p, "lora_path", directory, err);
    return status ? status : load(p, "lora_name", name, directory, err);
}

rein_status policies_unload(policies *p, const char *name, rein_error *err) {
    char shown[REIN_TEXT_SHOWN];
    pthread_mutex_lock(&p->lock);
    policy *found = find_open(p, name);
    if (found && found->named) {
        found->gone = true;
        if (!found->users) close_policy(p, found);
    } else found = NULL;
    pthread_mutex_unlock(&p->lock);
    return found ? REIN_OK
                 : rein_fail_at(err, REIN_END, "lora_name", -1, "is %s: no adapter of that name is loaded",
                                rein_json_quote(shown, name));
}

static void put_model(rein_text *json, const char *name, int64_t step) {
    rein_text_put(json, json->length && json->data[json->length - 1] == '}' ? ", {" : "{");
    rein_json_put_name(json, "id");
    rein_json_put_string(json, name);
    rein_text_put(json, ", \"object\": \"model\", \"created\": 0, \"owned_by\": \"rein\"");
    if (step >= 0) rein_text_format(json, ", \"policy_step\": %" PRId64, step);
    rein_text_put(json, "}");
}

static void put_steps(rein_text *json, const policies *p, int64_t newest) {
    rein_run *run;
    const int64_t *steps;
    if (!p->options->run || rein_run_open(&run, p->options->run, REIN_RUN_READ, NULL)) return;
    const size_t n = rein_run_checkpoints(&steps, run);
    for (size_t i = 0; i < n; i++) {
        rein_text name = {0};
        if (p->options->full && steps[i] != newest) continue;
        rein_text_format(&name, "%s@%" PRId64, p->options->name, steps[i]);
        if (!name.failed) put_model(json, name.data, steps[i]);
        rein_text_free(&name);
    }
    rein_run_close(run);
}

void policies_list(rein_text *json, policies *p) {
    const server_options *o = p->options;
    const int64_t newest = policies_newest(p);
    rein_text_put(json, "{\"object\": \"list\", \"data\": [");
    put_model(json, o->name, newest);
    put_steps(json, p, newest);
    put_model(json, "base", -1);
    if (strcmp(o->model_name, o->name) != 0 && strcmp(o->model_name, "base") != 0) put_model(json, o->model_name, -1);
    pthread_mutex_lock(&p->lock);
    for (policy *at = p->open; at; at = at->next)
        if (at->named && !at->gone) put_model(json, at->name, -1);
    pthread_mutex_unlock(&p->lock);
    rein_text_put(json, "]}");
}

rein_status policies_open(policies **opened, const server_options *options, rein_error *err) {
    policies *p = *opened = calloc(1, sizeof *p);
    rein_status status = REIN_OK;
    policy *newest;
    if (!p) return rein_fail(err, REIN_ENOMEM, "no memory for the server");
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->opening, NULL);
    p->options = options;
    p->newest = options->step;
    /* without a run the newest policy is the model */
    p->base.name = strdup(options->run ? "base" : options->name), p->base.step = -1;
    if (!p->base.name) status = rein_fail(err, REIN_ENOMEM, "no memory for the server");
    for (size_t i = 0; i < options->n_adapters && !status; i++) {
        status = load(p, "adapter", options->adapters[i].name, options->adapters[i].directory, err);
        if (status && err && strcmp(err->field, "adapter") != 0) rein_fail_in(err, status, "--adapter");
    }
    if (!status && options->run && !(status = policies_find(&newest, p, options->name, err))) policies_give(p, newest);
    if (status) policies_close(p), *opened = NULL;
    return status;
}

void policies_close(policies *p) {
    if (!p) return;
    while (p->open) close_policy(p, p->open);
    free(p->base.name);
    free(p->art);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->opening);
    free(p);
}
