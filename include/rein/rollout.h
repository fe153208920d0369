/* rollout.h - sampling from a policy: the generator, tasks, rewards, prompts, rollouts, evaluation.
 *
 * Boundary of section 1, the generator: token ids in, tokens with their log-probabilities out, one step at a time, any number of requests
 * at a time; text where a tokenizer is given. The sections after it work on examples and texts.
 *
 * The log-probability of a sampled token has the bits that rein_forward computes for it. Which token is sampled depends only on the policy,
 * the prompt and the address (seed, purpose, step, prompt, sample, position), never on what else is being sampled. */
#ifndef REIN_ROLLOUT_H
#define REIN_ROLLOUT_H

#include "rein/model.h"
#include "rein/tokenizer.h"
#include "rein/trajectory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------- 1. generator */

/* How tokens are chosen and when a completion ends. Zero is literal: rein_sampling_plain() is the policy itself. The temperature is the
 * policy's. With top_k, top_p or min_p the sampler is not the policy; they are applied in this order, each to the tokens left by the one
 * before. */
typedef struct rein_sampling {
    int greedy;             /* the most probable token, of equals the first */
    int64_t top_k;          /* only the k most probable; 0: all */
    double top_p;           /* only the most probable whose sum reaches it, 0 < top_p <= 1; 1: all */
    double min_p;           /* only those with at least this share of the greatest probability, 0 <= min_p < 1; 0: all */
    size_t max_tokens;      /* 1 or more */
    size_t min_tokens;      /* before so many tokens no end token is sampled: there the sampler is not the policy */
    const int32_t *end_ids; /* tokens that end a completion, and belong to it */
    size_t n_end_ids;
    const char *const *stops; /* texts that end a completion wherever they begin; they need a tokenizer */
    size_t n_stops;
    size_t top_log_probs; /* how many of the most probable tokens are reported with each */
    uint64_t seed;
} rein_sampling;

/* Plain sampling: no filter, at most 256 tokens, no end tokens or stop texts. Thread-safe. */
REIN_API rein_sampling rein_sampling_plain(void);

/* What is sampled for. The values are part of the ABI: never renumbered. */
typedef enum rein_purpose {
    REIN_PURPOSE_TRAINING = 0,
    REIN_PURPOSE_EVALUATION = 1 /* its random numbers are those of no step of training, and the same in every evaluation */
} rein_purpose;

/* Where the randomness of a request is. {0}: the first prompt of the first step. */
typedef struct rein_address {
    rein_purpose purpose;
    uint64_t step;   /* of training; 0 in an evaluation */
    uint64_t prompt; /* which one of the step, or of the evaluation */
    /* In an episode of several turns, where each turn is a request: the episode's number among those of its prompt, and the tokens that were
     * sampled in it before. Elsewhere 0. */
    uint64_t sample, position;
} rein_address;

typedef struct rein_request {
    const int32_t *prompt; /* [n_prompt], at least one, such as the begin token */
    size_t n_prompt;
    size_t samples; /* 1 to 1048576; the prompt is computed once for all of them; they start as max_active leaves room */
    rein_address address;
    rein_sampling sampling;
    /* A policy of the same model with another adapter or temperature; NULL: the generator's policy. The adapter must outlive the request,
     * and must not change before the request ends. */
    const rein_policy *policy;
    int prompt_log_probs; /* 1: the log-probs of the prompt's tokens are reported too; it is then computed without the prefix cache */
} rein_request;

typedef struct rein_generator rein_generator;

typedef struct rein_generator_options {
    size_t max_active; /* samples decoded at a time; others wait; 0: 256 */
    rein_exec exec;
    rein_activation_cache *activation_cache; /* keeps the activations of the samples for training; NULL: they are not kept */
    /* The most prompt tokens that one step computes; 0: 4096. A longer prompt takes several steps, in which other samples continue. */
    size_t max_prompt_tokens;
    rein_memory *memory; /* charged with the keys of all samples and the activations of a step; NULL: no ceiling */
    /* Bytes for the keys of finished requests; 0: none. A request that begins with the same tokens reuses them: the same bits in less
     * time. Not together with an activation cache. */
    size_t prefix_cache;
} rein_generator_options;

/* Opens a generator that samples from a policy. The policy's model and adapter, the tokenizer (NULL: no texts) and the options'
 * handles must outlive the generator. options may be NULL: {0}. With options->memory the activations of the largest step are
 * charged here (REIN_ENOMEM if they do not fit), and keys as requests begin, for the longest that their samples may become. The
 * caller closes *generator; it is NULL on failure. One thread at a time uses a generator. */
REIN_API rein_status rein_generator_open(rein_generator **generator, const rein_policy *policy, const rein_tokenizer *tokenizer,
                                         const rein_generator_options *options, rein_error *err);

/* How requests share a generator, for a server of many clients; without this call they are served one after another. `reserved` of the
 * max_active places are for requests that have no sample at work, and the other places are taken in turns, a sample of each request at a
 * time. While samples are at work a step computes at most `beside` tokens (1 to max_prompt_tokens) for each prompt that waits, and at most
 * max_prompt_tokens in all: one long prompt hardly delays the others, and requests that arrive together begin together. The same bits either
 * way.
 * REIN_EINVAL: `reserved` is 0 or not below max_active, `beside` is out of range, or there are requests already. */
REIN_API rein_status rein_generator_take_turns(rein_generator *generator, size_t reserved, size_t beside, rein_error *err);

/* Closes a generator. NULL is fine. What was not finished is lost. Its memory for keys, up to 1 GiB, stays with the model, unless
 * it was opened with `memory`: the next generator finds it. */
REIN_API void rein_generator_close(rein_generator *generator);

/* Adds a request; everything but its adapter is copied. *number counts requests from 0. Requests of several policies are computed in one
 * batch, each with the bits it has alone. A request for which `memory` can never have room is refused (REIN_ENOMEM); one for which it has
 * no room now waits. With an activation cache all requests have the generator's policy. */
REIN_API rein_status rein_generator_add(size_t *number, rein_generator *generator, const rein_request *request, rein_error *err);

/* Ends a request, waiting or at work, at once, and frees its memory; pointers of its tokens are then no longer good. The other requests
 * do not change by a bit. A number whose request has finished is ignored. */
REIN_API void rein_generator_cancel(rein_generator *generator, size_t number);

/* The number of requests that have neither finished nor failed. */
REIN_API size_t rein_generator_unfinished(const rein_generator *generator);

typedef struct rein_choice {
    int32_t id;
    float log_prob;
} rein_choice;

/* A token that was sampled. Pointers are good until the next step. */
typedef struct rein_sampled {
    size_t request, sample; /* the request's number, and which of its samples */
    size_t position;        /* of the token in the completion, from 0 */
    int32_t id;
    float log_prob;         /* of the policy, bit for bit what training computes */
    float sampler_log_prob; /* of the sampler: the same without top_k, top_p, min_p, min_tokens; 0 when greedy */
    const rein_choice *top; /* [n_top], the most probable tokens of the policy, in order */
    size_t n_top;
    const char *text; /* the text that became final with this token, without stop texts */
    size_t length;
    rein_finish finish;
    uint64_t activation_key; /* names the sample in the generator's activation cache; 0: nothing is cached */
    size_t cached_tokens;    /* tokens of the prompt whose keys came from the prefix cache */
    /* With prompt_log_probs, at position 0 of a sample (else NULL): log-probs [n_prompt], NaN at the first token, which has none, and the
     * most probable tokens [n_prompt][n_top], not set at the first token. */
    const float *prompt_log_probs;
    const rein_choice *prompt_top;
} rein_sampled;

/* Makes the next token of every active sample, and computes new prompts in the same step. *n is 0 when rein_generator_unfinished is 0, in a
 * step that computed only a part of a prompt, and when requests failed. A request waits while `memory` has no room for it and others are
 * at work, whose end gives memory back; while none is, it fails. A failure concerns one request (rein_generator_failed), and the others
 * continue. The step itself fails only without memory for the weights; it may be tried
 * again. */
REIN_API rein_status rein_generator_step(const rein_sampled **sampled, size_t *n, rein_generator *generator, rein_error *err);

/* Takes the next request that failed: returns its status, fills err and *number. REIN_OK: there is none. A request fails with REIN_ENOMEM
 * if there is no memory for it, with REIN_ERANGE if a log-probability is not a finite number. All its samples end with it, and the step in
 * which it fails reports no tokens of it. */
REIN_API rein_status rein_generator_failed(size_t *number, rein_generator *generator, rein_error *err);

/* -------------------------------------------------------------------------------------------------------------------- 2. tasks */

typedef enum rein_split { REIN_SPLIT_TRAIN = 0, REIN_SPLIT_HELD_OUT = 1 } rein_split;

/* What a source is. The values are part of the ABI: never renumbered. */
typedef enum rein_task_kind {
    REIN_TASK_UNKNOWN = 0,
    REIN_TASK_BUILTIN = 1,    /* NAME: a built-in task (rein_task_at) */
    REIN_TASK_FILE = 2,       /* FILE.jsonl */
    REIN_TASK_PROGRAM = 3,    /* anything else with a blank or a slash in it: a command */
    REIN_TASK_EXAMPLES = 4,   /* examples:NAME: a list that the calling program has in memory */
    REIN_TASK_ENVIRONMENT = 5 /* env: COMMAND: a program that plays over several turns */
} rein_task_kind;

/* Tells what a source is; nothing is opened. Thread-safe. */
REIN_API rein_task_kind rein_task_kind_of(const char *source);

/* Where examples come from. One thread at a time. */
typedef struct rein_task rein_task;

/* Examples that the calling program has in memory: JSON lines as in a file. Their source is "examples:NAME". */
typedef struct rein_task_text {
    const char *name;
    const char *text; /* [length] */
    size_t length;
} rein_task_text;

typedef struct rein_task_options {
    uint64_t seed;         /* of a built-in task: another seed gives other examples */
    double held_out_share; /* of a file: about this share of its examples is held out, by a hash of the prompt; 0: all train */
    double timeout;        /* of a program or an environment: seconds it may take for an answer; 0: 30 */
    const rein_task_text *texts; /* [n_texts] what "examples:NAME" may name; they are needed only while the task is opened */
    size_t n_texts;
    const char *directory; /* where a program starts; NULL or "": the current directory. Read only while the task is opened */
} rein_task_options;

/* Opens a task. A source is one of:
 *     NAME         a built-in task (rein_task_at)
 *     FILE.jsonl   JSON lines: {"prompt": text} or {"messages": [...]}, "answer" (a text or a number), "budget", and anything else
 *     examples:NAME  the same in memory (options->texts)
 *     env: COMMAND  an environment (docs/agents.md): a program with which the model plays episodes of several turns
 *     COMMAND      anything else with a blank or a slash in it: /bin/sh runs it; it reads {"split": "train"|"held_out", "index": N,
 *                  "seed": N} and answers with an example as in a file, one line each; {"end": true} means that there is no example
 *                  of this index or a later one
 * In built-in tasks and files no prompt is in both splits. The caller closes *task; it is NULL on failure. */
REIN_API rein_status rein_task_open(rein_task **task, const char *source, const rein_task_options *options, rein_error *err);

/* Closes a task. NULL is fine. */
REIN_API void rein_task_close(rein_task *task);

/* The source of a task, as given. It belongs to the task. */
REIN_API const char *rein_task_name(const rein_task *task);

/* The number of examples of a split; SIZE_MAX: endless, or not known. Of an environment: of different episodes. */
REIN_API size_t rein_task_size(const rein_task *task, rein_split split);

/* Gets example number `index` of a split, the same every time; of an environment, what an episode begins with. The caller frees it.
 * REIN_END: there is none. On failure *example is {0}. */
REIN_API rein_status rein_task_example(rein_example *example, rein_task *task, rein_split split, uint64_t index, rein_error *err);

/* Tells whether the task rewards completions itself: 1 if it is built in or an environment, else 0. */
REIN_API int rein_task_verifies(const rein_task *task);

/* Verifies a completion: 1 if it is right, 0 if not, NaN if the task is not built in. Pure and thread-safe. */
REIN_API double rein_task_verify(const rein_task *task, const rein_example *example, const char *response, size_t length);

/* Appends a right (or plausible) completion to *text, as used for supervised training. Which one depends only on (seed, index).
 * REIN_EINVAL: the task is not built in. */
REIN_API rein_status rein_task_demonstrate(rein_text *text, const rein_task *task, const rein_example *example, uint64_t index,
                                           rein_error *err);

typedef struct rein_task_info {
    const char *name, *help; /* help: one line */
} rein_task_info;

/* Built-in task number i, or NULL past the last. Static storage. */
REIN_API const rein_task_info *rein_task_at(size_t i);

/* ------------------------------------------------------------------------------------------------------------------ 3. rewards */

/* A completion as judges see it. Everything is borrowed. */
typedef struct rein_response {
    const rein_example *example;
    size_t group;     /* completions of one group have the same number and follow each other */
    const char *text; /* [length], UTF-8 */
    size_t length;
    size_t tokens;      /* with the end token */
    int truncated;      /* cut off at a limit of length */
    int64_t step;       /* of the policy that wrote it; -1: not known, as in an evaluation */
    const int32_t *ids; /* [n_ids] what the policy sampled, with the end token; NULL: not known, or not in one piece */
    size_t n_ids;
    double earned; /* the sum of an environment's rewards for the episode; 0 without an environment */
} rein_response;

/* A judge that is a function of the calling program. Its spec is "function:NAME". */
typedef struct rein_reward_function {
    const char *name;
    /* Fills rewards [n], one for each completion: a finite number, or NaN if the function does not apply to it. On failure it returns a
     * status and fills *err, and the step fails with it. */
    rein_status (*give)(void *context, double *rewards, const rein_response *responses, size_t n, rein_error *err);
    void *context;
} rein_reward_function;

/* One or several judges of completions. One thread at a time. */
typedef struct rein_reward rein_reward;

typedef struct rein_reward_options {
    const double *weights; /* [n]; NULL: all 1 */
    double timeout;        /* seconds a program may take for an answer; 0: 30 */
    size_t restarts;       /* how many times in a row a program that failed is restarted before that is an error; 0: never */
    const rein_reward_function *functions; /* [n_functions] what "function:NAME" may name; they must outlive the reward */
    size_t n_functions;
    const char *directory; /* where programs start; NULL or "": in the current directory. It is copied */
    rein_exec exec;        /* of reward models */
    const struct rein_prompting
        *prompting; /* how the policy's prompts are made, for reward models; the date of its chat must outlive the
                                             * reward. NULL: plain prompts are texts */
} rein_reward_options;

/* Opens judges. Each is one of (docs/rewards.md):
 *     task           the task's own verifier; of an environment, the sum of the rewards that it gave
 *     exact          1 if the completion, without blanks around it, is the answer
 *     number         1 if the last number in the completion is the answer's
 *     regex:PATTERN  1 if it matches (PCRE2); with a group, 1 if what group 1 matches is the answer
 *     length:N       1 up to N tokens, then falling to 0 at 2N
 *     model:DIR      the score of a reward model: the directory of a …ForSequenceClassification with num_labels 1, or of an adapter (SEQ_CLS)
 *     function:NAME  a function of the calling program (options->functions)
 *     COMMAND        anything with a blank or a slash in it: a program that answers one JSON line for each completion
 *     group: COMMAND one JSON line for a group of completions, and one answer with all their rewards
 * specs [n], at least one, are copied; `task` (may be NULL) must outlive the reward. Programs are started here, once. The caller closes
 * *reward; it is NULL on failure. */
REIN_API rein_status rein_reward_open(rein_reward **reward, const char *const *specs, size_t n, const rein_task *task,
                                      const rein_reward_options *options, rein_error *err);

/* Closes the judges. NULL is fine. Programs see the end of their input, then have a second to end. */
REIN_API void rein_reward_close(rein_reward *reward);

/* Rewards n completions: rewards [n] are weighted sums, components [n·judges] (or NULL) what each judge gave, before weighting,
 * completion by completion. A function that does not apply to a completion (NaN) does not count in its sum; a completion to which
 * no judge applies is an error. So is a judge that needs an answer and gets an example without one, and a reward that is not a
 * finite number: the message names the judge, the completion and what the judge gave. On failure nothing is written; where a
 * program failed, the reward can then only be closed. */
REIN_API rein_status rein_reward_give(double *rewards, double *components, rein_reward *reward, const rein_response *responses,
                                      size_t n, rein_error *err);

/* Rewards every trajectory of groups that were sampled: its reward, and its scores, one a judge. Judges see the example of the
 * group and the text of the first history. Errors as above; on failure nothing is changed. */
REIN_API rein_status rein_reward_groups(rein_groups *groups, rein_reward *reward, rein_error *err);

/* A short name of judge i, for metrics: "exact", "judge.py"; unique among the judges. It belongs to the reward. */
REIN_API const char *rein_reward_name(const rein_reward *reward, size_t i);
REIN_API size_t rein_reward_count(const rein_reward *reward);

/* What programs wrote to standard error, and their restarts, since the last call; "" if there is nothing. Lives until the next call. */
REIN_API const char *rein_reward_log(rein_reward *reward);

/* ------------------------------------------------------------------------------------------------------------------ 4. prompts */

/* How examples become token ids. {0}: plain prompts are encoded as they are, with the tokenizer's own special tokens. */
typedef struct rein_prompting {
    const rein_chat *chat; /* of messages, and of plain prompts if chat_prompts is 1; NULL: there is none */
    int chat_prompts;      /* 1: a plain prompt is a user's message */
    const char *system;    /* a system message before it; NULL: none */
    int no_thinking;       /* enable_thinking = false: qwen3, and templates that read it */
    size_t max_tokens;     /* as in rein_encoding; 0: no limit */
} rein_prompting;

/* A conversation with all that a chat template reads. Borrowed. */
typedef struct rein_conversation {
    const struct rein_json *messages;  /* an array, as clients of OpenAI's API send it (rein_chat_messages_read) */
    const struct rein_json *tools;     /* an array, or NULL: none */
    const struct rein_json *variables; /* an object (enable_thinking …), or NULL: none */
} rein_conversation;

/* Appends the ids of a conversation, followed by the beginning of an assistant's turn. Tools, tool calls and variables need the tokenizer's
 * own template (chat->run). A field of a message that the format or template does not read is an error. Contents are text, never special
 * tokens. no_thinking is enable_thinking = false. max_tokens: as in rein_encoding. Thread-safe. */
REIN_API rein_status rein_conversation_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                              const rein_conversation *conversation, int no_thinking, size_t max_tokens,
                                              rein_error *err);

/* Appends the ids of messages [n] in a chat format, followed by the beginning of an assistant's turn. Contents are text, never special
 * tokens. max_tokens: as in rein_encoding. Thread-safe. */
REIN_API rein_status rein_messages_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_chat *chat,
                                          const rein_message *messages, size_t n, int no_thinking, size_t max_tokens,
                                          rein_error *err);

/* If a text contains tool calls as Hermes and Qwen models write them, <tool_call>{"name": …, "arguments": {…}}</tool_call>, and all of them are
 * well-formed: appends the entries of a JSON array to `calls`, as OpenAI's API has them (stream 1: as in a chunk), and returns their number;
 * *content is the length of what stands before them. 0: the text has no tool calls. Their ids begin with `id`. Thread-safe. */
REIN_API size_t rein_tool_calls_parse(rein_text *calls, size_t *content, const char *text, size_t length, const char *id,
                                      int stream);

/* How many bytes of an unfinished text are certainly content: no tool call, no beginning of one, no blanks before one. Thread-safe. */
REIN_API size_t rein_tool_calls_begin(const char *text, size_t length);

/* Where the content or, with calls 1, the tool calls of the last message end in a conversation that begins like the text `before`; 0: they
 * cannot be separated. What follows is the rest of the turn, as the template writes it. Thread-safe. */
REIN_API size_t rein_rendered_answer_end(const rein_rendered *rendered, const rein_text *before, int calls);

/* Gets the token that ends an assistant's turn in a chat format; -1: the format has none (raw). In a template that is run it is the first
 * special token behind a content, or else the tokenizer's end token. REIN_EINVAL: the tokenizer has no such token, so it was not made for
 * the format. Thread-safe. */
REIN_API rein_status rein_turn_end(int32_t *id, const rein_tokenizer *tokenizer, const rein_chat *chat, rein_error *err);

/* Appends the ids of an example's prompt, at least one. A plain prompt may spell special tokens out. Thread-safe. */
REIN_API rein_status rein_example_encode(rein_ids *ids, const rein_tokenizer *tokenizer, const rein_example *example,
                                         const rein_prompting *how, rein_error *err);

/* ----------------------------------------------------------------------------------------------------------------- 5. rollouts */

/* What is sampled, and how. Everything is borrowed. */
typedef struct rein_rollout_options {
    rein_task *task;
    rein_split split;
    const uint64_t *indices; /* [n] of the examples */
    size_t n, samples;       /* prompts, and completions of each */
    rein_policy policy;
    const rein_tokenizer *tokenizer;
    rein_prompting prompting;
    rein_sampling sampling; /* its end_ids and the end of a turn end a completion */
    rein_address address;   /* of the first prompt; prompt i has address.prompt + i */
    int sampler_log_probs;  /* 1: the log-probs of the sampler are recorded too */
    size_t max_turns; /* of an episode of an environment; 0: no limit. sampling.max_tokens is the limit of the whole episode */
    rein_exec exec;
    rein_activation_cache *activation_cache;                      /* as the generator's */
    void (*progress)(void *context, size_t finished, size_t all); /* NULL, or called as completions end */
    void *context;
} rein_rollout_options;

/* Samples completions, and appends one group for each example: its trajectories have one history each, the prompt and the completion. Their
 * policy_step is the step of the address (-1 in an evaluation), their rewards are 0 until rein_reward_groups. An example whose prompt
 * leaves no room in the model is an error that names it. On failure the groups are as they were.
 * With an environment each trajectory is an episode. It needs prompting.chat. Its history has the prompt, what the model wrote, which trains, and
 * what the environment answered; where the chat template writes an earlier turn differently, the next turn begins another history. Its reward is
 * the sum of the environment's, its metric "turns" counts the model's turns, and its json has the messages. */
REIN_API rein_status rein_rollout_sample(rein_groups *groups, const rein_rollout_options *options, rein_error *err);

/* ----------------------------------------------------------------------------------------------- 6. episodes of the calling program */

/* Episodes in which the calling program plays the other side: it asks for the model's next message of any number of episodes at a time, and ends
 * each with a reward. One thread at a time. */
typedef struct rein_play rein_play;

/* Opens n·samples episodes; episode e is sample e % samples of group e / samples. Of the options task, split, indices, progress and
 * activation_cache are not read; prompting.chat is needed. What the options point to must outlive the play. The caller closes *play; it is NULL
 * on failure. */
REIN_API rein_status rein_play_open(rein_play **play, const rein_rollout_options *options, rein_error *err);

/* Closes a play. NULL is fine. Episodes that were not taken are lost. */
REIN_API void rein_play_close(rein_play *play);

/* A request for the model's next message. Everything is copied. */
typedef struct rein_play_request {
    size_t episode;
    const struct rein_json *messages; /* the whole conversation, as clients of OpenAI's API send it */
    const struct rein_json *tools;    /* or NULL: none */
    size_t max_tokens;                /* of this turn; 0: as many as the episode has left */
    const char *const *stops;         /* [n_stops] texts that end the turn */
    size_t n_stops;
} rein_play_request;

/* Asks for a turn; *number counts the turns of the play from 0. Where the messages begin with a conversation that the model had in this episode,
 * with the message that it wrote, the tokens that it sampled stay as they are and the rest is appended; otherwise a new history of the trajectory
 * begins. Several turns of an episode may be at work at a time.
 * Which tokens are sampled depends only on the policy, the address and what the episode was asked before, not on the order in which episodes
 * ask. Where turns of one episode are at work at a time, that holds as long as the limit of its tokens does not end one.
 * REIN_END: the episode is at a limit, and err->field says which: "turns" (max_turns), "tokens" (sampling.max_tokens, of all its turns) or
 * "context" (the messages leave no room in the model). REIN_EINVAL: the episode has ended, or the messages are wrong. On failure the episode is
 * as it was; after REIN_ENOMEM it can only be dropped. */
REIN_API rein_status rein_play_ask(size_t *number, rein_play *play, const rein_play_request *turn, rein_error *err);

/* A turn that the model has written. Pointers are good until the next step, and the message until its episode ends. */
typedef struct rein_play_turn {
    size_t number, episode;
    const struct rein_json *message; /* role, content, and with tools tool_calls, as OpenAI's API has them */
    rein_finish finish;
    size_t prompt_tokens, cached_tokens; /* cached: their keys were there from earlier turns */
    size_t tokens;                       /* that were sampled, with the end token */
    const int32_t *ids;                  /* [tokens] */
    const float *log_probs;              /* [tokens] of the policy */
} rein_play_turn;

/* Samples the next token of every turn at work. *written [n] are the turns that ended with it, in the order in which they were asked for. After a
 * failure the play can only be closed. */
REIN_API rein_status rein_play_step(const rein_play_turn **written, size_t *n, rein_play *play, rein_error *err);

/* The number of turns at work. */
REIN_API size_t rein_play_unfinished(const rein_play *play);

/* Ends an episode with a reward. Turns of it that are at work are cancelled, and leave nothing. Its metric "turns" counts the turns that ended.
 * REIN_EINVAL: the reward is not finite, or the model has written nothing in it (then it can only be dropped). */
REIN_API rein_status rein_play_end(rein_play *play, size_t episode, double reward, rein_error *err);

/* Sets a metric of an episode that was ended, as rein_trajectory_set_metric. */
REIN_API rein_status rein_play_set_metric(rein_play *play, size_t episode, const char *name, double value, rein_error *err);

/* Leaves an episode out of its group. Turns of it that are at work are cancelled. An episode that has ended can be dropped too. */
REIN_API void rein_play_drop(rein_play *play, size_t episode);

/* Appends the groups, when every episode was ended or dropped (REIN_EINVAL otherwise). A group of which every episode was dropped is left out. What
 * rein_rollout_sample says of episodes holds for the trajectories. The play can then only be closed. On failure the groups are as they were. */
REIN_API rein_status rein_play_take(rein_groups *groups, rein_play *play, rein_error *err);

/* --------------------------------------------------------------------------------------------------------------- 7. evaluation */

typedef struct rein_evaluation {
    size_t n, prompts, samples;                    /* trajectories; groups; the fewest trajectories that a group has */
    double accuracy;                               /* share of trajectories that are right, the mean over prompts */
    double accuracy_low, accuracy_high;            /* its 95 % interval */
    double pass_at_k;                              /* k = samples: share of the prompts with a right completion */
    double reward, mean_length, share_over_budget; /* over: of those with a budget; NaN if none has one */
    double truncated;                              /* share cut off at a limit of length */
} rein_evaluation;

/* The figures of groups with rewards (rein_trajectory_is_right says what is right). budget: of trajectories without one of their own; -1:
 * none. Thread-safe. */
REIN_API rein_evaluation rein_evaluate(const rein_groups *groups, int64_t budget);

/* Probability that k of n samples, of which `right` are right, have a right one among them (Chen et al. 2021, unbiased):
 * 1 − C(n − right, k)/C(n, k). k <= n. Thread-safe. */
REIN_API double rein_pass_at_k(size_t n, size_t right, size_t k);

/* pass@k, the mean over groups, each of k trajectories or more. Thread-safe. */
REIN_API double rein_groups_pass_at_k(const rein_groups *groups, size_t k);

/* The share `right` of n with its 95 % interval by Wilson's score. n = 0: 0 to 1. Thread-safe. */
REIN_API void rein_interval(double *low, double *high, double right, double n);

/* The difference of two accuracies on the same prompts, second − first, with its 95 % interval over prompts (paired). Both must have as
 * many groups, of as many trajectories. Thread-safe. */
REIN_API double rein_evaluate_difference(double *low, double *high, const rein_groups *first, const rein_groups *second);

#ifdef __cplusplus
}
#endif
#endif
