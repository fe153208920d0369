/* settings_table.h - the settings of a run, one row each: name, value, range, default. Private.
 *
 * The name is that of the field in rein_settings. Texts have no range, and their default is "". */
#ifndef REIN_TRAIN_SETTINGS_TABLE_H
#define REIN_TRAIN_SETTINGS_TABLE_H

/*      name, kind, value in help, lowest, highest, default, section of the help, help */
#define REIN_SETTINGS_TABLE(ROW)                                                                                                   \
    ROW(model, TEXT, "DIR", 0, 0, 0, "policy", "directory of the model, as Hugging Face writes it")                                \
    ROW(adapter, TEXT, "DIR", 0, 0, 0, "policy", "directory of an adapter (PEFT) to begin with")                                   \
    ROW(quantize, TEXT, "q8_0|q4_0", 0, 0, 0, "policy", "quantise the matrices of the model, for less memory; changes the policy") \
    ROW(full, SWITCH, "yes|no", 0, 0, 0, "policy", "train all weights instead of an adapter")                                      \
    ROW(lora_rank, WHOLE, "N", 1, 65536, 8, "policy", "rank of the adapter")                                                       \
    ROW(lora_alpha, NUMBER, "X", 1e-6, 1e6, 16, "policy", "its scale is alpha/rank")                                               \
    ROW(use_rslora, SWITCH, "yes|no", 0, 0, 0, "policy", "its scale is alpha/√rank")                                               \
    ROW(lora_modules, TEXT, "TEXT", 0, 0, 0, "policy", "modules with an adapter, \"q_proj,v_proj\"; all linear ones if not given") \
    ROW(temperature, NUMBER, "X", 1e-3, 1e3, 1, "policy", "of the policy, softmax(z/T), in sampling and in training")              \
    ROW(seed, WHOLE, "N", 0, 1e15, 1, "policy", "seed of all random numbers")                                                      \
    ROW(learning_rate, NUMBER, "X", 0, 1, 1e-5, "optimizer", "of AdamW (default 3e-4; with --full 1e-5)")                          \
    ROW(adam_beta1, NUMBER, "X", 0, 0.999999, 0.9, "optimizer", "decay of the first moment")                                       \
    ROW(adam_beta2, NUMBER, "X", 0, 0.999999999, 0.99, "optimizer", "decay of the second moment")                                  \
    ROW(adam_epsilon, NUMBER, "X", 1e-30, 1, 1e-8, "optimizer", "added to the root of the second moment")                          \
    ROW(weight_decay, NUMBER, "X", 0, 1, 0, "optimizer", "of matrices, decoupled")                                                 \
    ROW(max_grad_norm, NUMBER, "X", 0, 1e9, 1, "optimizer", "gradients are clipped to this norm; 0: no clipping")                  \
    ROW(lr_scheduler_type, SCHEDULE, "constant|linear|cosine", 0, 0, 0, "optimizer",                                               \
        "shape of the learning rate after the warm-up")                                                                            \
    ROW(warmup_steps, WHOLE, "N", 0, 1e9, 0, "optimizer", "steps in which the learning rate rises")                                \
    ROW(total_steps, WHOLE, "N", 0, 1e9, 0, "optimizer", "steps after which linear and cosine reach their end")                    \
    ROW(lr_final_share, NUMBER, "X", 0, 1, 0, "optimizer", "of the learning rate, at the end")                                     \
    ROW(epochs, WHOLE, "N", 1, 1000, 1, "optimizer", "passes over the groups of a step, with the same old log-probs")              \
    ROW(minibatches, WHOLE, "N", 1, 1e6, 1, "optimizer", "optimizer steps in each pass, on as many parts of the groups")           \
    ROW(mask_truncated_completions, SWITCH, "yes|no", 0, 0, 0, "optimizer",                                                        \
        "responses that were cut off at the length limit do not train")                                                            \
    ROW(critic, TEXT, "DIR", 0, 0, 0, "critic",                                                                                    \
        "learned critic for advantage gae: a model with a value head, or same: the policy's own model")                            \
    ROW(critic_learning_rate, NUMBER, "X", 0, 1, 1e-5, "critic", "of the critic's AdamW; the rest is as for the policy")           \
    ROW(critic_warmup_steps, WHOLE, "N", 0, 1e9, 0, "critic", "steps in which the critic's learning rate rises")                   \
    ROW(critic_only_steps, WHOLE, "N", 0, 1e9, 0, "critic", "steps at the beginning in which only the critic trains")              \
    ROW(value_clip, NUMBER, "X", 0, 1e300, 0.5, "critic", "a value moves at most this far from what it was, as the loss sees it")  \
    ROW(whiten_advantages, SWITCH, "yes|no", 0, 0, 1, "critic",                                                                    \
        "advantages have mean 0 and std 1 over the tokens of a step: the default; --whiten-advantages=no leaves them")             \
    ROW(kl_target, NUMBER, "X", 1e-9, 1e9, 0, "reference", "KL to the reference at which kl_reward_coef aims, step by step")       \
    ROW(kl_horizon, NUMBER, "X", 1e-9, 1e15, 10000, "reference", "responses in which kl_reward_coef changes by up to a fifth")     \
    ROW(kl_target_unit, KL_UNIT, "sequence|token", 0, 0, 0, "reference", "of kl_target: nats of a response, or of a token")        \
    ROW(kl_penalty_reference_step, WHOLE, "N", 0, 1e9, -1, "reference", "the reference is the checkpoint of this step")            \
    ROW(kl_penalty_step_lag, WHOLE, "N", 1, 1e9, 0, "reference", "the reference is the checkpoint this many steps back")           \
    ROW(kl_ref_adapter_path, TEXT, "DIR", 0, 0, 0, "reference", "the reference is the model with this adapter")                    \
    ROW(teacher, TEXT, "DIR", 0, 0, 0, "reference", "a model with the same vocabulary that teaches (teacher_coef)")                \
    ROW(shards, WHOLE, "N", 0, 4096, 0, "engine", "parts in which gradients are summed; changes the last bits of results")         \
    ROW(share_limit, WHOLE, "N", 0, 65536, 0, "engine",                                                                            \
        "responses that share the computation of their prompt; changes the last bits of results")                                  \
    ROW(no_sharing, SWITCH, "yes|no", 0, 0, 0, "engine",                                                                           \
        "compute the prompt again for each response; changes the last bits of results")                                            \
    ROW(recompute, SWITCH, "yes|no", 0, 0, 0, "engine", "compute activations again in the backward pass, for less memory")         \
    ROW(threads, WHOLE, "N", 0, 256, 0, "engine", "0: all cores")                                                                  \
    ROW(save_steps, WHOLE, "N", 1, 1e9, 1, "run", "a checkpoint every N steps, and at the end")                                    \
    ROW(keep_last, WHOLE, "N", 0, 1e9, 0, "run",                                                                                   \
        "checkpoints to keep; 0: all; a new run gets 3, but for rein train and rein serve")                                        \
    ROW(keep_best, TEXT, "METRIC", 0, 0, 0, "run", "keep the checkpoint where it was greatest (\"-loss\": least)")                 \
    ROW(steps, WHOLE, "N", 1, 1e9, 100, "rollout", "steps of the run")                                                             \
    ROW(prompts, WHOLE, "N", 1, 1e6, 32, "rollout", "prompts of a step")                                                           \
    ROW(samples, WHOLE, "N", 1, 65536, 8, "rollout", "responses to each prompt: a group")                                          \
    ROW(max_tokens, WHOLE, "N", 1, 1e9, 256, "rollout", "length at which a response is cut")                                       \
    ROW(activation_cache, WHOLE, "MB", 0, 1e9, 4096, "rollout",                                                                    \
        "memory for activations that sampling computes and training reuses; 0: none")                                              \
    ROW(temperature_final, NUMBER, "X", 1e-3, 1e3, 0, "rollout", "the temperature falls (or rises) to this over the steps")        \
    ROW(top_k, WHOLE, "N", 0, 1e9, 0, "rollout", "sample among the N most probable tokens; needs a mismatch or truncation policy") \
    ROW(top_p, NUMBER, "X", 1e-9, 1, 1, "rollout",                                                                                 \
        "sample among the most probable tokens whose sum reaches it; needs a mismatch or truncation policy")                       \
    ROW(min_p, NUMBER, "X", 0, 0.999999, 0, "rollout",                                                                             \
        "sample among tokens with this share of the greatest probability; needs a mismatch or truncation policy")                  \
    ROW(truncation, TRUNCATION, "none|policy", 0, 0, 0, "rollout",                                                                 \
        "policy: top_k, top_p and min_p are part of the policy, in sampling and in training")                                      \
    ROW(max_turns, WHOLE, "N", 1, 1e6, 8, "rollout", "turns of the model in an episode of an environment")                         \
    ROW(stop, LIST, "TEXT", 0, 0, 0, "rollout", "a text that ends a response, \\n a newline; may be repeated")                     \
    ROW(dynamic_sampling, WHOLE, "N", 0, 1000, 0, "rollout",                                                                       \
        "sample again, up to N times, for groups in which all rewards are the same (DAPO)")                                        \
    ROW(budget_target, NUMBER, "X", 1e-9, 1e9, 0, "rollout", "mean length that dual ascent on the budget penalty aims at")         \
    ROW(budget_rate, NUMBER, "X", 0, 1e6, 1e-4, "rollout", "its step size")                                                        \
    ROW(ptx_data, TEXT, "FILE", 0, 0, 0, "rollout", "supervised examples (as for rein sft) mixed into every step")                 \
    ROW(ptx_coef, NUMBER, "X", 0, 1e6, 0.1, "rollout", "weight of their loss")                                                     \
    ROW(ptx_batch, WHOLE, "N", 1, 1e6, 8, "rollout", "examples of a step")                                                         \
    ROW(stop_at, TEXT, "TEXT", 0, 0, 0, "rollout", "end the run when a metric gets there: \"eval/accuracy>=0.95\", \"kl>0.2\"")    \
    ROW(task, TEXT, "TASK", 0, 0, 0, "task",                                                                                       \
        "a built-in task (rein task), a file of JSON lines, a program, or env: and a program that plays")                          \
    ROW(eval_task, TEXT, "TASK", 0, 0, 0, "task", "the task of evaluations; the held-out part of the task if not given")           \
    ROW(held_out, NUMBER, "X", 0, 0.9, 0.1, "task", "share of a file that is held out for evaluations")                            \
    ROW(reward, LIST, "JUDGE", 0, 0, 0, "task",                                                                                    \
        "task, exact, number, regex:PATTERN, length:N, model:RUN, model:DIR or a program; may be repeated")                        \
    ROW(reward_weights, TEXT, "LIST", 0, 0, 0, "task", "weights of several rewards: 1,0.5")                                        \
    ROW(working_directory, TEXT, "DIR", 0, 0, 0, "task",                                                                           \
        "where programs of tasks and rewards start; where the run was started if not given")                                       \
    ROW(reward_timeout, NUMBER, "X", 1e-3, 1e6, 30, "task", "seconds that a program may take for one reply")                       \
    ROW(reward_restarts, WHOLE, "N", 0, 1000, 0, "task", "how many times in a row a program that failed is restarted")             \
    ROW(chat, SWITCH, "yes|no", 0, 0, 0, "task", "a prompt is a user's message, put into the chat template")                       \
    ROW(chat_format, TEXT, "NAME", 0, 0, 0, "task",                                                                                \
        "chat format instead of the model's own: raw, chatml, qwen2.5, qwen3, llama3, llama3.1")                                   \
    ROW(system, TEXT, "TEXT", 0, 0, 0, "task", "system message before every prompt")                                               \
    ROW(date, TEXT, "DATE", 0, 0, 0, "task",                                                                                       \
        "date that a chat template sees, YYYY-MM-DD; the day on which the run was started if not given")                           \
    ROW(eval_steps, WHOLE, "N", 0, 1e9, 10, "evaluation", "evaluate every N steps; 0: at the beginning and the end")               \
    ROW(eval_prompts, WHOLE, "N", 0, 1e6, 100, "evaluation", "held-out prompts; 0: no evaluation")                                 \
    ROW(eval_samples, WHOLE, "N", 1, 1e4, 1, "evaluation", "sampled responses to each")

#endif
