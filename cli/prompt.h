/* prompt.h - the prompt of `rein generate`: text, ids, or a chat in the template of the model.
 *
 * It is read before the model is opened, so that an error on the command line is reported at once, and encoded afterwards. */
#ifndef REIN_CLI_PROMPT_H
#define REIN_CLI_PROMPT_H

#include "policy.h"
#include "rein/json.h"

typedef struct rein_prompt {
    const char *where, *source; /* the command, and the option with the prompt */
    rein_text text;
    rein_ids ids;
    int chat;
    const char *system, *format; /* NULL: none; that of the tokenizer */
    int no_thinking;
    rein_json *json; /* of --messages */
    rein_message *messages;
    size_t n_messages;
    int32_t turn_end; /* the token that ends a turn of the chat, or -1 */
} rein_prompt;

/* Both return an exit status, after printing what is wrong. Free the prompt whatever the status. */
int rein_prompt_read(rein_prompt *prompt, const rein_args *args);
int rein_prompt_encode(rein_prompt *prompt, const rein_opened *opened);
void rein_prompt_free(rein_prompt *prompt);

#endif
