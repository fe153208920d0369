/* fuzz_http.c - any bytes at the HTTP border of the server (libFuzzer).
 *
 * The first byte chooses: the rest goes over the socket as it is (request line, headers, chunks, several requests at once), or it is the body
 * of a request to one of the routes. Whatever comes, the server answers or closes, and then still answers a good request. */
/* words: server/request.c server/routes.c server/prompt.c server/http.c server/train_request.c server/train_routes.c server/art_routes.c server/page_routes.c */
/* longest: 4096 bytes */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/require.h"
#include "fuzz/run_folder.h"
#include "server/server.h"

static const char CONFIG[] =
    "{\"eos_token\": \"<end>\", \"chat_template\": \"{%- if tools %}T{{ tools | length }}{% endif %}{%- for m in messages %}{{ "
    "m.role }}:"
    "{{ m.content }}{%- for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<end>{% endfor %}a:\"}";

static server *running;

/* A run that clients can train. */
static rein_session *begin_run(void) {
    rein_settings *settings = NULL;
    rein_session *session = NULL;
    rein_error err = {0};
    need_folder();
    require(!rein_settings_new(&settings, &err) && !rein_settings_set(settings, "model", "models/sums", &err) &&
                !rein_settings_set(settings, "preset", "grpo", &err) && !rein_settings_set(settings, "threads", "1", &err) &&
                !rein_session_open(&session, in_folder("run"), settings, &err),
            "no run", err.message);
    rein_settings_free(settings);
    return session;
}

static void start(void) {
    static char text[1 << 20];
    FILE *file = fopen("models/sums/tokenizer.json", "r");
    require(file != NULL, "models/sums is not here", "");
    const size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    const rein_tokenizer_files files = {
        .name = "sums", .tokenizer = text, .tokenizer_length = length, .config = CONFIG, .config_length = strlen(CONFIG)};
    rein_tokenizer *tokenizer = NULL;
    rein_error err = {0};
    rein_session *session = begin_run();
    require(!rein_tokenizer_read(&tokenizer, &files, &err), "no tokenizer", err.message);
    const server_options options = {.model = rein_session_policy(session).model,
                                    .session = session,
                                    .run = in_folder("run"),
                                    .tokenizer = tokenizer,
                                    .model_name = "sums",
                                    .name = "m",
                                    .step = 0,
                                    .temperature = 1,
                                    .host = "127.0.0.1",
                                    .max_concurrent = 4,
                                    .queue = 8,
                                    .max_body = 2048,
                                    .prefix_cache = 1 << 20,
                                    .adapter_cache = 1,
                                    .adapter_root = "models",
                                    .exec = {.threads = 1}};
    require(!server_open(&running, &options, &err), "no server", err.message);
}

static int dial(void) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(server_port(running)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    require(s >= 0 && !connect(s, (const struct sockaddr *)&address, sizeof address), "cannot connect", "");
    return s;
}

/* Sends bytes, and reads until the server closes, or sends nothing for `patience` milliseconds. */
static size_t exchange(char *answer, size_t most, const char *bytes, size_t size, int patience) {
    const int s = dial();
    size_t got = 0;
    ssize_t n = 1;
    struct pollfd wait = {.fd = s, .events = POLLIN};
    for (size_t at = 0; at < size && n > 0; at += (size_t)n) n = send(s, bytes + at, size - at, MSG_NOSIGNAL);
    while (poll(&wait, 1, patience) > 0 && (n = recv(s, answer + got, most - got, 0)) > 0)
        got = got + (size_t)n < most ? got + (size_t)n : 0;
    close(s);
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* NULL: the bytes go out as they are */
    static const char *const routes[] = {"POST /v1/chat/completions",
                                         "POST /v1/completions",
                                         "POST /tokenize",
                                         "POST /detokenize",
                                         "POST /v1/load_lora_adapter",
                                         "POST /v1/unload_lora_adapter",
                                         NULL,
                                         NULL,
                                         "POST /v1/train",
                                         "POST /v1/preview/training-jobs",
                                         "POST /v1/preview/models",
                                         "DELETE /v1/checkpoints"};
    enum { ROUTES = sizeof routes / sizeof *routes };
    static char answer[1 << 16], request[8192];
    if (!size || size > 4096) return 0;
    if (!running) start();
    const size_t route = data[0] % ROUTES;
    if (routes[route]) {
        const int head = snprintf(request, sizeof request,
                                  "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                                  "Content-Length: %zu\r\n\r\n",
                                  routes[route], size - 1);
        memcpy(request + head, data + 1, size - 1);
        const size_t got = exchange(answer, sizeof answer - 1, request, (size_t)head + size - 1, 200);
        answer[got] = 0;
        require(!got || !strncmp(answer, "HTTP/1.1 ", 9), "not an answer", answer);
        require(strncmp(answer, "HTTP/1.1 500", 12) != 0, "an error of the server", answer);
    } else exchange(answer, sizeof answer - 1, (const char *)data + 1, size - 1, 2);
    static const char health[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const size_t got = exchange(answer, sizeof answer - 1, health, sizeof health - 1, 5000);
    answer[got] = 0;
    require(!strncmp(answer, "HTTP/1.1 200", 12), "the server does not answer any more", answer);
    return 0;
}
