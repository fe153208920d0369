/* prompt.h - the prompt of `rein generate`: text, ids, or a chat as the model's template has it.
 *
 * Read before the model is opened, so that a mistake on the command line is said at once; encoded after. */
#ifndef REIN_CLI_PROMPT_H
#define REIN_CLI_PROMPT_H

#include "policy.h"
#include "rein/json.h"

typedef struct rein_prompt {
    const char *where, *source; /* the option that it comes from */
    rein_text text;
    rein_ids ids;
    int chat;
    const char *system, *format; /* NULL: none, the tokenizer's */
    int no_thinking;
    rein_json *json; /* of --messages */
    rein_message *messages;
    size_t n_messages;
    int32_t turn_end; /* the token that ends a turn of the chat, or -1 */
} rein_prompt;

/* Both return an exit status, having said what is wrong. Free it whatever that is. */
int rein_prompt_read(rein_prompt *prompt, const rein_args *args);
int rein_prompt_encode(rein_prompt *prompt, const rein_opened *opened);
void rein_prompt_free(rein_prompt *prompt);

#endif
