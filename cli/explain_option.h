/* explain_option.h - one option, and the symbols of the formulas, for `rein explain`. */
#ifndef CLI_EXPLAIN_OPTION_H
#define CLI_EXPLAIN_OPTION_H

#include "settings.h"

/* The option of this name, with dashes or underscores; NULL: there is none. */
const cli_setting *cli_explained_option(const char *word);

/* Append the explanation, without a newline at its end. */
void cli_explain_option(rein_text *out, const cli_setting *setting, int json);

/* Append a row of the table of KL gradients, as text. */
void cli_explain_kl(rein_text *out, const rein_kl_bias *bias);
void cli_explain_symbols(rein_text *out, int json);

#endif
