/* struct_size.c - the sizes of public structs by name, for bindings that declare them a second time. */
#include <string.h>

#include "rein/rein.h"

#define SIZE(name) \
    { #name, sizeof(name) }
static const struct {
    const char *name;
    size_t size;
} SIZES[] = {
    SIZE(rein_error),
    SIZE(rein_exec),
    SIZE(rein_parameter),
    SIZE(rein_budget),
    SIZE(rein_gpo),
    SIZE(rein_preference_options),
    SIZE(rein_preference_info),
    SIZE(rein_preference_metrics),
    SIZE(rein_pairs),
    SIZE(rein_batch),
    SIZE(rein_metrics),
    SIZE(rein_loss),
    SIZE(rein_option_info),
    SIZE(rein_option_alias),
    SIZE(rein_preset_info),
    SIZE(rein_kl_bias),
    SIZE(rein_model_options),
    SIZE(rein_model_info),
    SIZE(rein_lora_options),
    SIZE(rein_adapter_info),
    SIZE(rein_policy),
    SIZE(rein_tokens),
    SIZE(rein_forward_options),
    SIZE(rein_score_options),
    SIZE(rein_ids),
    SIZE(rein_text),
    SIZE(rein_span),
    SIZE(rein_encoding),
    SIZE(rein_chat),
    SIZE(rein_message),
    SIZE(rein_chat_options),
    SIZE(rein_chat_span),
    SIZE(rein_rendered),
    SIZE(rein_template_options),
    SIZE(rein_sampling),
    SIZE(rein_address),
    SIZE(rein_request),
    SIZE(rein_generator_options),
    SIZE(rein_sampled),
    SIZE(rein_example),
    SIZE(rein_history),
    SIZE(rein_trajectory),
    SIZE(rein_group),
    SIZE(rein_groups),
    SIZE(rein_trainer_options),
    SIZE(rein_pass_options),
    SIZE(rein_pass_result),
    SIZE(rein_adamw),
    SIZE(rein_named_number),
    SIZE(rein_session_report),
    SIZE(rein_train_options),
    SIZE(rein_response),
    SIZE(rein_reward_function),
    SIZE(rein_task_text),
    SIZE(rein_task_inputs),
    SIZE(rein_fork),
    SIZE(rein_prompting),
    SIZE(rein_rollout_options),
    SIZE(rein_play_request),
    SIZE(rein_play_turn),
    SIZE(rein_loop_options),
    SIZE(rein_evaluation),
    SIZE(rein_loop_evaluation),
    SIZE(rein_loop_report),
};

size_t rein_struct_size(const char *name) {
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        if (!strcmp(SIZES[i].name, name)) return SIZES[i].size;
    return 0;
}
