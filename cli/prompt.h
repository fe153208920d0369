/* prompt.h - the prompt of `rein generate`: text, ids, or a chat in the template of the model.
 *
 * It is read before the model is opened, so that an error on the command line is reported at once, and encoded afterwards. */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

#include "policy.h"
#include "rein/json.h"
#include "rein/rollout.h"

typedef struct cli_prompt {
    const char *where, *source; /* the command, and the option with the prompt */
    rein_text text;
    rein_ids ids;
    int chat;
    const char *system, *format; /* NULL: none; that of the tokenizer */
    int no_thinking;
    rein_json *json;        /* of --messages */
    rein_message *messages; /* [n_messages] that are a role and a text each */
    size_t n_messages;
    rein_conversation conversation; /* messages with more than that, or with tools; messages NULL: none */
    char date[24];                  /* for a chat template that asks */
    int32_t turn_end;               /* the token that ends a turn of the chat, or -1 */
} cli_prompt;

/* Both return an exit status, after printing what is wrong. Free the prompt whatever the status. */
int cli_prompt_read(cli_prompt *prompt, const cli_args *args);
int cli_prompt_encode(cli_prompt *prompt, const cli_opened *opened);
void cli_prompt_free(cli_prompt *prompt);

#endif
