/* remote.c - HTTP as a client speaks it: one request a connection, an answer with a length, in chunks, or up to the end. */
#include "remote.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rein/json.h"
#include "terminal.h"

enum { LONGEST_LINE = 8192, LONGEST_ERROR = 1 << 16 };

int cli_remote_open(cli_remote *remote, const char *url, const char *where) {
    const char *host = url + strlen("http://");
    if (strncmp(url, "http://", strlen("http://")) != 0)
        return cli_say_option(where, "url", "is \"%s\": http://HOST:PORT is needed; for https use a tunnel or a proxy", url);
    const size_t length = *host == '[' && strchr(host, ']') ? (size_t)(strchr(host, ']') - host) + 1 : strcspn(host, ":/");
    const char *port = host[length] == ':' ? host + length + 1 : "80",
               *rest = host + length + (host[length] == ':') + (host[length] == ':' ? strcspn(port, "/") : 0);
    if (!length || !strcspn(port, "/") ||
        (strcmp(rest, "") != 0 && strcmp(rest, "/") != 0 && strcmp(rest, "/v1") != 0 && strcmp(rest, "/v1/") != 0))
        return cli_say_option(where, "url", "is \"%s\": http://HOST:PORT is needed", url);
    remote->host = *host == '[' ? strndup(host + 1, length - 2) : strndup(host, length);
    remote->port = strndup(port, strcspn(port, "/"));
    return remote->host && remote->port ? CLI_DONE : cli_say_no_memory(where);
}

void cli_remote_free(cli_remote *remote) {
    free(remote->host);
    free(remote->port);
}

/* ------------------------------------------------------------------------------------------------------------------- connections */

typedef struct connection {
    int fd;
    const cli_remote *remote;
    char bytes[LONGEST_LINE];
    size_t at, end;
    int failed, ended;
} connection;

static int is_stopped(const connection *c) { return c->remote->stop && *c->remote->stop; }

static int dial(connection *c, const char *where) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const cli_remote *r = c->remote;
    struct addrinfo *found = NULL;
    const int problem = getaddrinfo(r->host, r->port, &hints, &found);
    if (problem) return cli_say(CLI_WRONG, where, "%s port %s: %s", r->host, r->port, gai_strerror(problem));
    c->fd = -1;
    for (const struct addrinfo *a = found; a && c->fd < 0; a = a->ai_next) {
        c->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (c->fd < 0 || !connect(c->fd, a->ai_addr, a->ai_addrlen)) continue;
        const int problem_here = errno;
        close(c->fd);
        c->fd = -1, errno = problem_here;
    }
    freeaddrinfo(found);
    return c->fd >= 0
               ? CLI_DONE
               : cli_say(CLI_FAILED, where, "%s port %s: %s: is rein serve running there?", r->host, r->port, strerror(errno));
}

static int put(connection *c, const rein_text *text) {
    size_t at = 0;
    while (at < text->length) {
        const ssize_t n = send(c->fd, text->data + at, text->length - at, MSG_NOSIGNAL);
        if (n < 0 && (errno != EINTR || is_stopped(c))) return 0;
        at += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* The next byte, or -1. */
static int next_byte(connection *c) {
    while (c->at == c->end && !c->failed && !c->ended) {
        const ssize_t n = recv(c->fd, c->bytes, sizeof c->bytes, 0);
        if (n < 0 && errno == EINTR && !is_stopped(c)) continue;
        c->failed = n < 0, c->ended = n == 0;
        c->at = 0, c->end = n > 0 ? (size_t)n : 0;
    }
    return c->at < c->end ? (unsigned char)c->bytes[c->at++] : -1;
}

/* A line without its end; 0: there is none, or it is too long. */
static int next_line(char line[LONGEST_LINE], connection *c) {
    size_t n = 0;
    int byte;
    while ((byte = next_byte(c)) >= 0 && byte != '\n') {
        if (n + 1 == LONGEST_LINE) return 0;
        line[n++] = (char)byte;
    }
    while (n && line[n - 1] == '\r') n--;
    line[n] = 0;
    return byte >= 0;
}

/* ----------------------------------------------------------------------------------------------------------------------- answers */

typedef struct answer {
    int status, chunked;
    size_t length; /* SIZE_MAX: up to the end */
} answer;

static int read_head(answer *a, connection *c) {
    char line[LONGEST_LINE];
    *a = (answer){.length = SIZE_MAX};
    if (!next_line(line, c) || strncmp(line, "HTTP/1.", 7) != 0 || strlen(line) < 12) return 0;
    a->status = atoi(line + 9);
    while (next_line(line, c)) {
        if (!*line) return 1;
        if (!strncasecmp(line, "Content-Length:", 15)) a->length = strtoull(line + 15, NULL, 10);
        if (!strncasecmp(line, "Transfer-Encoding:", 18) && strstr(line, "chunked")) a->chunked = 1;
    }
    return 0;
}

/* Takes `length` bytes, in pieces as they come; *whole is 0 if fewer came. */
static int take_bytes(int *whole, connection *c, size_t length, int (*take)(void *, const char *, size_t), void *context) {
    int status = CLI_DONE;
    while (length && !status) {
        if (next_byte(c) < 0) break;
        c->at--;
        const size_t n = c->end - c->at < length ? c->end - c->at : length;
        status = take(context, c->bytes + c->at, n);
        c->at += n, length -= length == SIZE_MAX ? 0 : n;
    }
    *whole = !length || c->ended;
    return status;
}

static int take_body(int *whole, const answer *a, connection *c, int (*take)(void *, const char *, size_t), void *context) {
    char line[LONGEST_LINE];
    int status = CLI_DONE;
    if (!a->chunked) return take_bytes(whole, c, a->length, take, context);
    for (*whole = 0; !status && next_line(line, c);) {
        const size_t length = strtoull(line, NULL, 16);
        if (!length) return *whole = 1, status;
        status = take_bytes(whole, c, length, take, context);
        if (status || !*whole) return status;
        *whole = 0;
        if (!next_line(line, c)) break;
    }
    return status;
}

static int keep(void *context, const char *bytes, size_t n) {
    rein_text *text = context;
    if (text->length + n < LONGEST_ERROR) rein_text_put_bytes(text, bytes, n);
    return CLI_DONE;
}

static int say_refusal(const rein_text *body, int status, const char *where) {
    rein_json *json = NULL;
    rein_json_parse(&json, body->data ? body->data : "", body->length, NULL, 0, NULL);
    const char *message = rein_json_string(rein_json_get(rein_json_get(json, "error"), "message"));
    const int code = cli_say(status >= 500 || status == 429 ? CLI_FAILED : CLI_WRONG, where, "the server answered %d%s%s", status,
                             message ? ": " : "", message ? message : "");
    rein_json_free(json);
    return code;
}

static int exchange(connection *c, const rein_text *request, int (*take)(void *, const char *, size_t), void *context,
                    const char *where) {
    answer a;
    rein_text error = {0};
    int whole = 0, status;
    if (!put(c, request) || !read_head(&a, c))
        return is_stopped(c) ? CLI_DONE : cli_say(CLI_FAILED, where, "the server closed the connection without an answer");
    status = a.status == 200 ? take_body(&whole, &a, c, take, context) : take_body(&whole, &a, c, keep, &error);
    if (!status && a.status != 200) status = say_refusal(&error, a.status, where);
    else if (!status && !whole && !is_stopped(c))
        status = cli_say(CLI_FAILED, where, "the server closed the connection within the answer");
    rein_text_free(&error);
    return status;
}

int cli_remote_ask(const cli_remote *remote, const char *path, const rein_text *body,
                   int (*take)(void *context, const char *bytes, size_t n), void *context, const char *where) {
    connection c = {.remote = remote, .fd = -1};
    rein_text request = {0};
    int status = dial(&c, where);
    if (status) return status;
    rein_text_format(&request, "%s %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n", body ? "POST" : "GET", path,
                     strchr(remote->host, ':') ? "[" : "", remote->host, strchr(remote->host, ':') ? "]" : "", remote->port);
    if (remote->key) rein_text_format(&request, "Authorization: Bearer %s\r\n", remote->key);
    if (body) rein_text_format(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body->length);
    rein_text_put(&request, "\r\n");
    if (body) rein_text_put_bytes(&request, body->data, body->length);
    status = request.failed ? cli_say_no_memory(where) : exchange(&c, &request, take, context, where);
    rein_text_free(&request);
    close(c.fd);
    return status;
}
