/* http.c - the HTTP border: who may ask, how much, and how an answer goes out. Connections wait suspended while a job is computed. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "parts.h"

/* A connection that sends nothing is soon closed, so that many of them do not lock others out. A client may take its time to read. */
enum {
    HEADERS = 32 * 1024,
    MOST_CONNECTIONS = 16000,
    OTHER_FILES = 64,
    ARRIVAL_SECONDS = 5,
    READING_SECONDS = 60,
    HTTP_THREADS = 2
};

/* ----------------------------------------------------------------------------------------------------------------------- errors */

static const char *type_of(int status) {
    switch (status) {
    case HTTP_UNAUTHORIZED: return "authentication_error";
    case HTTP_FORBIDDEN: return "permission_error";
    case HTTP_NOT_FOUND: return "not_found_error";
    case HTTP_BUSY: return "rate_limit_error";
    case HTTP_FAILED:
    case HTTP_STOPPING: return "server_error";
    default: return "invalid_request_error";
    }
}

static const char *code_of(int status, const rein_error *err) {
    if (status == HTTP_UNAUTHORIZED) return "invalid_api_key";
    if (status == HTTP_NOT_FOUND && !strcmp(err->field, "model")) return "model_not_found";
    return NULL;
}

void http_put_error(rein_text *out, int status, const rein_error *err) {
    const char *code = code_of(status, err);
    rein_text_put(out, "{\"error\": {\"message\": ");
    rein_json_put_string(out, err->message);
    rein_text_format(out, ", \"type\": \"%s\", \"param\": ", type_of(status));
    if (*err->field) rein_json_put_string(out, err->field);
    else rein_text_put(out, "null");
    rein_text_put(out, ", \"code\": ");
    if (code) rein_json_put_string(out, code);
    else rein_text_put(out, "null");
    rein_text_put(out, "}}");
}

/* ----------------------------------------------------------------------------------------------------------------------- checks */

/* Takes as long for a wrong key as for a right one of its length. */
static bool same_key(const char *given, const char *key) {
    const size_t n = strlen(given), length = strlen(key);
    unsigned char differ = n != length;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)(given[i] ^ key[i % (length ? length : 1)]);
    return !differ;
}

static const char *header(struct MHD_Connection *connection, const char *name) {
    return mhd.lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

const char *http_parameter(const exchange *e, const char *name) {
    return mhd.lookup_connection_value(e->connection, MHD_GET_ARGUMENT_KIND, name);
}

rein_status http_step_parameter(int64_t *step, const exchange *e, const char *name, rein_error *err) {
    const char *text = http_parameter(e, name);
    char *end = NULL;
    *step = -1;
    if (!text) return REIN_OK;
    errno = 0;
    *step = strtoll(text, &end, 10);
    if (!*text || *end || errno || strspn(text, "-0123456789") != strlen(text) || *step < -1 || *step > INT64_C(1) << 53)
        return rein_fail_at(err, REIN_EINVAL, name, -1, "must be a step, or -1");
    return REIN_OK;
}

static bool has_key(struct MHD_Connection *connection, const char *key) {
    const char *given = header(connection, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!given || strncasecmp(given, "Bearer ", 7) != 0) return false;
    given += 7;
    return same_key(given + strspn(given, " "), key);
}

/* "localhost:8000" without the port. */
static size_t host_length(const char *host) {
    const char *close = *host == '[' ? strchr(host, ']') : NULL;
    return close ? (size_t)(close - host) + 1 : strcspn(host, ":");
}

static bool is_name(const char *host, const char *name) {
    const size_t n = host_length(host);
    return strlen(name) == n && !strncasecmp(host, name, n);
}

/* A page of another site can make a browser send requests here, under another name (DNS rebinding) or with its own origin. */
static bool is_host_allowed(const server *s, const char *host) {
    if (s->options.api_key) return true; /* such a page does not know the key */
    return host &&
           (is_name(host, "localhost") || is_name(host, "127.0.0.1") || is_name(host, "[::1]") || is_name(host, s->options.host));
}

static bool is_origin_allowed(const char *origin, const char *host) {
    const char *at = strstr(origin, "://");
    return at && host && !strcasecmp(at + 3, host);
}

static bool is_json(const char *type) {
    const size_t n = strlen("application/json");
    return type && !strncasecmp(type, "application/json", n) && (!type[n] || type[n] == ';' || type[n] == ' ');
}

static int refuse(exchange *e, int status, const char *format, const char *value) {
    rein_fail(&e->err, REIN_EINVAL, format, value);
    return e->refused = status;
}

/* What can be told from the headers. Sets e->refused. */
static void check(exchange *e, struct MHD_Connection *connection, const char *path, const char *method) {
    const server *s = e->s;
    const char *host = header(connection, MHD_HTTP_HEADER_HOST), *origin = header(connection, MHD_HTTP_HEADER_ORIGIN),
               *length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    bool other_method;
    char shown[REIN_TEXT_SHOWN];
    if (!is_host_allowed(s, host))
        refuse(e, HTTP_FORBIDDEN, "the header Host is %s: a server without an API key is called localhost",
               host ? rein_json_quote(shown, host) : "missing");
    else if (origin && !is_origin_allowed(origin, host))
        refuse(e, HTTP_FORBIDDEN, "the header Origin is %s: pages of other sites may not send requests",
               rein_json_quote(shown, origin));
    else if ((e->route = routes_find(e->argument, method, path, &other_method), !e->route || !e->route->open) &&
             s->options.api_key && !has_key(connection, s->options.api_key))
        refuse(e, HTTP_UNAUTHORIZED, "%s", "the API key is missing or wrong: send the header Authorization: Bearer KEY");
    else if (!e->route && other_method)
        refuse(e, HTTP_NOT_ALLOWED, "the method %s is not allowed here", rein_json_quote(shown, method));
    else if (!e->route) refuse(e, HTTP_NOT_FOUND, "there is no route %s", rein_json_quote(shown, path));
    else if ((!strcmp(method, "POST") || (!strcmp(method, "DELETE") && length && strcmp(length, "0") != 0)) &&
             !is_json(header(connection, MHD_HTTP_HEADER_CONTENT_TYPE)))
        refuse(e, HTTP_NOT_JSON, "%s", "the header Content-Type must be application/json");
    else if (length && strtoull(length, NULL, 10) > s->options.max_body)
        refuse(e, HTTP_TOO_LARGE, "the body has %s bytes, more than --max-body allows", length);
}

/* ---------------------------------------------------------------------------------------------------------------------- answers */

/* A page runs only its own code, and no other page may hold it. */
static void guard_page(struct MHD_Response *response, const rein_text *policy) {
    mhd.add_response_header(response, "Content-Security-Policy", policy->data);
    mhd.add_response_header(response, "Referrer-Policy", "no-referrer");
    mhd.add_response_header(response, "X-Frame-Options", "DENY");
    mhd.add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    mhd.add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
}

static enum MHD_Result queue(struct MHD_Connection *connection, struct MHD_Response *response, int status, const char *type,
                             const rein_text *policy) {
    if (!response) return MHD_NO;
    if (policy && policy->length) guard_page(response, policy);
    mhd.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    mhd.add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    mhd.add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (status == HTTP_BUSY) mhd.add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (status == HTTP_UNAUTHORIZED) mhd.add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    const enum MHD_Result result = mhd.queue_response(connection, (unsigned)status, response);
    mhd.destroy_response(response);
    return result;
}

/* Sends a text, which is then empty. `policy`: that of a page, or NULL. */
static enum MHD_Result send_text(struct MHD_Connection *connection, rein_text *text, int status, const char *type,
                                 const rein_text *policy) {
    if (text->failed) { /* no memory for the answer */
        static char body[] =
            "{\"error\": {\"message\": \"no memory for the answer\", \"type\": \"server_error\", \"param\": null, \"code\": null}}";
        rein_text_free(text);
        return queue(connection, mhd.create_response_from_buffer(sizeof body - 1, body, MHD_RESPMEM_PERSISTENT), HTTP_FAILED,
                     "application/json", NULL);
    }
    char *bytes = text->data ? text->data : calloc(1, 1);
    struct MHD_Response *response = bytes ? mhd.create_response_from_buffer(text->length, bytes, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!response) free(bytes);
    *text = (rein_text){0};
    return queue(connection, response, status, type ? type : "application/json", policy);
}

static enum MHD_Result send_error(exchange *e, struct MHD_Connection *connection, int status) {
    rein_text_free(&e->out);
    http_put_error(&e->out, status, &e->err);
    return send_text(connection, &e->out, status, NULL, NULL);
}

/* The next bytes of a stream; without any the connection is suspended. */
static ssize_t read_stream(void *context, uint64_t position, char *to, size_t most) {
    (void)position;
    exchange *e = context;
    job *j = e->job;
    ssize_t n = 0;
    pthread_mutex_lock(&j->lock);
    const size_t left = j->out.length - j->taken;
    if (j->out.failed) n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (left) {
        n = (ssize_t)(left < most ? left : most);
        memcpy(to, j->out.data + j->taken, (size_t)n);
        j->taken += (size_t)n;
        if (j->taken == j->out.length) j->taken = j->out.length = 0;
    } else if (j->done) n = MHD_CONTENT_READER_END_OF_STREAM;
    else {
        j->suspended = e->connection;
        mhd.suspend_connection(e->connection);
    }
    pthread_mutex_unlock(&j->lock);
    return n;
}

/* Answers when the job can be answered; suspends the connection until then. */
static enum MHD_Result answer_job(exchange *e, struct MHD_Connection *connection) {
    job *j = e->job;
    pthread_mutex_lock(&j->lock);
    const bool ready = j->stream ? j->status != 0 : j->done;
    if (!ready) {
        j->suspended = connection;
        mhd.suspend_connection(connection);
        pthread_mutex_unlock(&j->lock);
        return MHD_YES;
    }
    const int status = j->status;
    rein_text out = {0};
    const bool stream = j->stream && status == HTTP_OK;
    if (!stream) out = j->out, j->out = (rein_text){0};
    pthread_mutex_unlock(&j->lock);
    if (!stream) return send_text(connection, &out, status, NULL, NULL);
    return queue(connection, mhd.create_response_from_callback(MHD_SIZE_UNKNOWN, 16 * 1024, read_stream, e, NULL), status,
                 "text/event-stream", NULL);
}

static void link_job(server *s, job *j, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&s->lock);
    j->fd = info ? info->connect_fd : -1;
    j->next = s->jobs, j->previous = NULL, j->linked = true;
    if (s->jobs) s->jobs->previous = j;
    s->jobs = j;
    pthread_mutex_unlock(&s->lock);
}

static void unlink_job(server *s, job *j) {
    pthread_mutex_lock(&s->lock);
    if (j->linked) {
        if (j->previous) j->previous->next = j->next;
        else s->jobs = j->next;
        if (j->next) j->next->previous = j->previous;
        j->linked = false;
    }
    pthread_mutex_unlock(&s->lock);
}

static void set_timeout(struct MHD_Connection *connection, unsigned seconds) {
    mhd.set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

static void free_body(exchange *e) {
    rein_text_free(&e->body);
    rein_memory_give(e->s->texts, e->charged);
    e->charged = 0;
}

static bool charge_body(exchange *e, size_t bytes) {
    const size_t unit = 64 << 10, more = bytes > e->charged ? (bytes - e->charged + unit - 1) / unit * unit : 0;
    if (!rein_memory_take(e->s->texts, more)) return false;
    e->charged += more;
    return true;
}

/* The whole request is here. */
static enum MHD_Result answer(exchange *e, struct MHD_Connection *connection) {
    server *s = e->s;
    rein_json *body = NULL;
    set_timeout(connection, READING_SECONDS);
    if (e->refused) return send_error(e, connection, e->refused);
    if (atomic_load(&s->draining) && !e->route->open) {
        rein_fail(&e->err, REIN_ESYSTEM, "the server is shutting down");
        return send_error(e, connection, HTTP_STOPPING);
    }
    e->connection = connection;
    if ((!strcmp(e->route->method, "POST") || e->body.length) &&
        rein_json_parse(&body, e->body.data ? e->body.data : "", e->body.length, "the body", REIN_JSON_NEEDS_OBJECT, &e->err))
        return send_error(e, connection, HTTP_BAD_REQUEST);
    int status = e->route->answer(e, body, &e->err);
    rein_json_free(body);
    free_body(e);
    if (e->job) {
        link_job(s, e->job, connection);
        status = job_samples(e->job) ? engine_add(s, e->job, &e->err) : 0;
        if (status) unlink_job(s, e->job);
        else return e->queued = true, answer_job(e, connection);
    }
    return status < HTTP_BAD_REQUEST || !e->err.code ? send_text(connection, &e->out, status, e->type, &e->policy)
                                                     : send_error(e, connection, status);
}

/* ------------------------------------------------------------------------------------------------------------------------ daemon */

/* Keeps a part of the body. A body that is refused is read and dropped, so that the client can read the refusal; up to a limit. */
static enum MHD_Result take_body(exchange *e, const char *data, size_t *size) {
    if (!e->refused && e->body.length + *size > e->s->options.max_body)
        refuse(e, HTTP_TOO_LARGE, "%s", "the body is larger than --max-body allows");
    if (!e->refused && !charge_body(e, e->body.length + *size))
        refuse(e, HTTP_STOPPING, "%s", "no memory for the body: those of other requests use it; try again later");
    if (!e->refused && rein_text_append(&e->body, data, *size, &e->err)) e->refused = HTTP_FAILED;
    if (e->refused) {
        free_body(e);
        e->dropped += *size;
        if (e->dropped > 2 * e->s->options.max_body) return MHD_NO;
    }
    *size = 0;
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *data, size_t *size, void **state) {
    (void)version;
    exchange *e = *state;
    if (!e) {
        if (!(e = *state = calloc(1, sizeof *e))) return MHD_NO;
        e->s = context;
        check(e, connection, path, method);
        return MHD_YES;
    }
    if (*size) return take_body(e, data, size);
    return e->queued ? answer_job(e, connection) : answer(e, connection);
}

static void complete(void *context, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code) {
    (void)context, (void)code;
    exchange *e = *state;
    if (!e) return;
    set_timeout(connection, ARRIVAL_SECONDS); /* for the next request */
    if (e->job) {
        unlink_job(e->s, e->job);
        if (e->job->kind == JOB_EVENTS) training_ignore(e->s, e->job);
        pthread_mutex_lock(&e->job->lock);
        const bool done = e->job->done;
        pthread_mutex_unlock(&e->job->lock);
        if (e->queued && !done && job_samples(e->job)) job_cancel(e->job);
        job_release(e->job);
    }
    free_body(e);
    rein_text_free(&e->out);
    rein_text_free(&e->policy);
    free(e);
    *state = NULL;
}

static bool is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return (ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static rein_status find_address(struct addrinfo **address, const server_options *o, rein_error *err) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV | (strcmp(o->host, "localhost") ? AI_NUMERICHOST : 0),
                                   .ai_family = strcmp(o->host, "localhost") ? AF_UNSPEC : AF_INET,
                                   .ai_socktype = SOCK_STREAM};
    char port[8], shown[REIN_TEXT_SHOWN];
    snprintf(port, sizeof port, "%u", o->port);
    if (getaddrinfo(o->host, port, &hints, address))
        return rein_fail_at(err, REIN_EINVAL, "host", -1, "is %s: a numeric address or localhost is needed",
                            rein_json_quote(shown, o->host));
    if (is_loopback((*address)->ai_addr) || o->api_key) return REIN_OK;
    freeaddrinfo(*address);
    return rein_fail_at(err, REIN_EINVAL, "host", -1,
                        "is %s: other machines could use the server; give an API key (--api-key-file)",
                        rein_json_quote(shown, o->host));
}

/* As many as there may be open files. The limit of the process is raised as far as it may be. */
static unsigned most_connections(void) {
    struct rlimit limit;
    const rlim_t wanted = MOST_CONNECTIONS + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return MOST_CONNECTIONS;
    const struct rlimit more = {limit.rlim_max < wanted ? limit.rlim_max : wanted, limit.rlim_max};
    if (!setrlimit(RLIMIT_NOFILE, &more)) limit = more;
    return limit.rlim_cur > 32 + OTHER_FILES ? (unsigned)(limit.rlim_cur - OTHER_FILES) : 32;
}

/* A socket that listens, or -1 and errno. */
static int listen_on(const struct addrinfo *address) {
    const int on = 1, fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) && /* a server that just ended leaves old connections */
        (address->ai_family != AF_INET6 || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)) &&
        !bind(fd, address->ai_addr, address->ai_addrlen) && !listen(fd, SOMAXCONN))
        return fd;
    const int problem = errno;
    close(fd);
    errno = problem;
    return -1;
}

/* An address that cannot be had is the user's mistake; to have no files or memory left is the system's. */
static rein_status cannot_listen(const server_options *o, rein_error *err) {
    const int problem = errno;
    switch (problem) {
    case EADDRINUSE:
        return rein_fail_at(err, REIN_EIO, "port", -1, "is %u, which another program listens on at %s", o->port, o->host);
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT: return rein_fail_at(err, REIN_EIO, "host", -1, "is %s: this machine does not have that address", o->host);
    case EACCES:
    case EPERM: return rein_fail_at(err, REIN_EIO, "port", -1, "is %u: this user may not listen on it", o->port);
    default: return rein_fail(err, REIN_ESYSTEM, "cannot listen on %s port %u: %s", o->host, o->port, strerror(problem));
    }
}

/* The daemon takes the socket. */
static struct MHD_Daemon *start(server *s, int fd, unsigned flags) {
    const server_options *o = &s->options;
    struct MHD_OptionItem tls[3] = {{MHD_OPTION_END, 0, NULL}};
    if (o->tls_cert) {
        flags |= MHD_USE_TLS;
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)o->tls_cert};
        tls[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)o->tls_key};
        tls[2] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    }
    return mhd.start_daemon(flags, 0, NULL, NULL, handle, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, complete, s,
                            MHD_OPTION_THREAD_POOL_SIZE, (unsigned)HTTP_THREADS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)HEADERS, MHD_OPTION_CONNECTION_LIMIT, most_connections(), MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)ARRIVAL_SECONDS, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

static rein_status cannot_start(const server_options *o, rein_error *err) {
    const int problem = errno;
    if (o->tls_cert && problem != EMFILE && problem != ENFILE && problem != ENOMEM && problem != EAGAIN)
        return rein_fail_at(err, REIN_EINVAL, "tls_cert", -1,
                            "and --tls-key must name the files, in PEM, of a certificate and of its private key: TLS refuses them");
    return rein_fail(err, REIN_ESYSTEM, "the HTTP server cannot be started: %s",
                     problem ? strerror(problem) : "no memory or files");
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length)) return 0;
    return ntohs(address.ss_family == AF_INET ? ((const struct sockaddr_in *)(const void *)&address)->sin_port
                                              : ((const struct sockaddr_in6 *)(const void *)&address)->sin6_port);
}

rein_status http_open(server *s, rein_error *err) {
    const server_options *o = &s->options;
    struct addrinfo *address;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    if (o->tls_cert && !mhd.is_feature_supported(MHD_FEATURE_TLS))
        return rein_fail_at(err, REIN_EINVAL, "tls_cert", -1, "is given, but this libmicrohttpd has no TLS");
    const rein_status status = find_address(&address, o, err);
    if (status) return status;
    if (address->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    const int fd = listen_on(address);
    freeaddrinfo(address);
    if (fd < 0) return cannot_listen(o, err);
    s->port = port_of(fd);
    errno = 0;
    s->daemon = start(s, fd, flags);
    if (s->daemon) return REIN_OK;
    const rein_status failed = cannot_start(o, err);
    if (fcntl(fd, F_GETFD) >= 0) close(fd); /* not all failures close it */
    return failed;
}

void http_close(server *s) {
    if (s->daemon) mhd.stop_daemon(s->daemon);
    s->daemon = NULL;
}
