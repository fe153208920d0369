/* tokenize.c - the tokenizer on a pipe, for test_tokenizers.py: `tokenize DIRECTORY encode|decode|stream FIRST SECOND`.
 *
 * A record is a 32-bit count (in the machine's order) and as many bytes (a text) or 32-bit ids; one comes out for each that goes in. FIRST
 * and SECOND are add_special and parse_special, or skip_special and nothing. A failure is the count 0xFFFFFFFF and a text record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rein/tokenizer.h"

static int read_record(char **data, uint32_t *count, size_t element) {
    if (fread(count, sizeof *count, 1, stdin) != 1) return 0;
    *data = realloc(*data, *count * element + 1);
    return *data && fread(*data, element, *count, stdin) == *count;
}

static void write_record(const void *data, size_t count, size_t element) {
    const uint32_t n = (uint32_t)count;
    fwrite(&n, sizeof n, 1, stdout);
    if (n) fwrite(data, element, n, stdout);
}

static void write_failure(const rein_error *err) {
    const uint32_t failed = UINT32_MAX;
    fwrite(&failed, sizeof failed, 1, stdout);
    write_record(err->message, strlen(err->message), 1);
}

static rein_status stream(rein_text *text, const rein_tokenizer *tokenizer, const int32_t *ids, size_t n, int skip,
                          rein_error *err) {
    rein_stream *s;
    rein_status status = rein_stream_open(&s, tokenizer, skip, err);
    for (size_t i = 0; !status && i < n; i++) status = rein_stream_push(text, s, ids[i], err);
    if (!status) status = rein_stream_finish(text, s, err);
    rein_stream_close(s);
    return status;
}

int main(int argc, char **argv) {
    rein_tokenizer *tokenizer;
    rein_error err;
    char *data = NULL;
    uint32_t count;
    if (argc != 5) return fprintf(stderr, "tokenize DIRECTORY encode|decode|stream FIRST SECOND\n"), 2;
    if (rein_tokenizer_open(&tokenizer, argv[1], &err)) return fprintf(stderr, "%s\n", err.message), 1;
    const int encodes = strcmp(argv[2], "encode") == 0, streams = strcmp(argv[2], "stream") == 0, first = atoi(argv[3]);
    const rein_encoding how = {.add_special = first, .parse_special = atoi(argv[4])};
    rein_ids ids = {0};
    rein_text text = {0};
    while (read_record(&data, &count, encodes ? 1 : sizeof(int32_t))) {
        ids.count = text.length = 0;
        const int32_t *given = (const int32_t *)(const void *)data;
        const rein_status status = encodes   ? rein_tokenizer_encode(&ids, tokenizer, data, count, &how, &err)
                                   : streams ? stream(&text, tokenizer, given, count, first, &err)
                                             : rein_tokenizer_decode(&text, tokenizer, given, count, first, &err);
        if (status) write_failure(&err);
        else if (encodes) write_record(ids.data, ids.count, sizeof *ids.data);
        else write_record(text.data, text.length, 1);
    }
    free(data);
    rein_ids_free(&ids);
    rein_text_free(&text);
    rein_tokenizer_close(tokenizer);
    return 0;
}
