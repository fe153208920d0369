/* recognise.c - `recognise DIRECTORY` prints the chat format of a tokenizer and its default system message, for test_chat_templates.py. */
#include <stdio.h>

#include "rein/tokenizer.h"

int main(int argc, char **argv) {
    rein_tokenizer *tokenizer;
    rein_chat chat;
    rein_error err;
    size_t length;
    if (argc != 2) return fprintf(stderr, "recognise DIRECTORY\n"), 2;
    if (rein_tokenizer_open(&tokenizer, argv[1], &err)) return fprintf(stderr, "%s\n", err.message), 1;
    const char *text = rein_tokenizer_chat_template(&length, tokenizer);
    const rein_status status = rein_chat_recognise(&chat, text, length, &err);
    rein_text system = {0};
    if (status || rein_chat_system(&system, &chat, &err)) fprintf(stderr, "%s\n", err.message);
    else printf("%s\t%s\n", rein_chat_name(&chat), system.data ? system.data : "");
    rein_text_free(&system);
    rein_tokenizer_close(tokenizer);
    return status != REIN_OK;
}
