/* help.c - the table of commands, and the help that is printed from it. */
#include "help.h"

#include <string.h>

#include "nearest.h"
#include "rein/rein.h"
#include "settings.h"
#include "terminal.h"
#include "wrap.h"

enum { WIDTH = 80 };

/* The operations of `rein objective`, each with its arguments, results and gradients. */
static void operations_help(rein_text *out) {
    const rein_operation_info *o;
    rein_text_put(out, "\nOperations:\n");
    for (size_t i = 0; (o = rein_operation_at(i)); i++) {
        const char *rows[][2] = {{"takes", o->arguments}, {"gives", o->results}, {"--grad", o->gradients}};
        rein_text_format(out, "  %-15s%s\n", o->name, o->summary);
        for (size_t r = 0; r < 3; r++) {
            if (!rows[r][1]) continue;
            rein_text_format(out, "    %-8s", rows[r][0]);
            cli_wrap(out, 12, WIDTH, rows[r][1]);
        }
    }
}

/* Options of several commands. */
#define THREADS "threads", "N", "use at most N threads (default 0: all cores); the result is the same"
#define MODEL "model", "DIR", "directory of the model; or a run, RUN or RUN@STEP"
#define QUANTIZE "quantize", "TYPE", "quantise the matrices of the model to q8_0 or q4_0, for less memory; changes the policy"
#define ADAPTER "adapter", "DIR", "LoRA adapter of the model, in the format of PEFT"
#define CONFIG "config", "FILE", "settings, as YAML; the command line takes precedence"
#define FORK "fork", "RUN@STEP", "start RUN from a checkpoint of another run, with its settings and those given here"
#define ACCEPT_CHANGED "accept-changed", NULL, "continue although a file of the run (model, adapter, task, data) is not what it was"
#define TRUST "trust", NULL, "run the commands of a run that was not made here by you: look at its config.yaml first"
#define DRY_RUN "dry-run", NULL, "check everything, report what would be trained, write nothing"
#define ERROR_JSON "json", NULL, "print an error as JSON, on standard error"
#define CHAT_FORMAT        \
    "chat-format", "NAME", \
        "format of the messages: raw, chatml, qwen2.5, qwen3, llama3 or llama3.1 (default: the model's own chat template)"

/* Of the commands that pass over data: sft, dpo, reward, distill. */
#define OF_PASSES                                                                                                                  \
    {"num-train-epochs", "N", "number of passes over the data (default 1)"},                                                       \
        {"max-steps", "N", "end after this many steps, whatever the number of epochs"}, {CONFIG}, {CHAT_FORMAT}, {ACCEPT_CHANGED}, \
        {TRUST}, {DRY_RUN}, {                                                                                                      \
        "json", NULL, "print one JSON object at the end: step, nothing_to_train, checkpoint, metrics of the last step"             \
    }

static const cli_command COMMANDS[] = {
    {
        .name = "demo",
        .usage = "[RUN] [--seed N] [--steps N] [--threads N] [--model DIR]",
        .summary = "the shipped model learns under a token budget while you watch",
        .description =
            "Trains a small language model that adds digits. At first about half of its answers are right, and they are too long. "
            "It learns from its own attempts with Kimi K2's budget-constrained loss and a KL penalty to the initial policy. A "
            "second run with a stronger penalty shows what the penalty costs. Both together take about a minute.\n"
            "RUN (default: rein-demo, or rein-demo-2 and so on if that is complete) and RUN-kl contain everything that rein run "
            "writes: summary.json, report.html, the adapters. An interrupted demo resumes.\n"
            "The figures are of prompts that were never trained on. The same seed gives the same weights.",
        .options = {{"seed", "N", "seed of all random numbers (default 1)"},
                    {"steps", "N", "number of training steps (default 40)"},
                    {THREADS},
                    {"model", "DIR", "the shipped model, models/sums, if it is not beside the program"}},
        .max_words = 1,
        .example = "rein demo",
        .run = cli_run_demo,
    },
    {
        .name = "objective",
        .usage = "NAME [--grad] [--threads N] [FILE]",
        .summary = "one operation on a JSON object of its arguments",
        .description = "Reads one JSON object from FILE (standard input by default, or if FILE is -), computes the operation in "
                       "double precision and prints one JSON object. Printed numbers read back exactly.\n"
                       "All arguments are checked before anything is printed. An error is one line on standard error that names "
                       "the field, its position and what would be right; the exit status is 2.",
        .options = {{"grad", NULL, "also print the exact gradient"}, {ERROR_JSON}, {THREADS}},
        .max_words = 2,
        .word = cli_operation_word,
        .operations = 1,
        .example = "echo '{\"rewards\": [[1, 0.5]], \"log_probs\": [[-1, -1.5]],\n"
                   "    \"old_log_probs\": [[-1.2, -1.3]], \"response_lengths\": [[150, 80]],\n"
                   "    \"token_budget\": 100, \"kl_coef\": 0.1, \"budget_penalty_coef\": 0.01}' |\n"
                   "    rein objective budget-loss --grad",
        .run = cli_run_objective,
    },
    {
        .name = "explain",
        .usage = "PRESET|OPERATION|LOSS|OPTION|symbols [--json], or --all",
        .summary = "a method or an option: formula, source, defaults, bias of the KL",
        .description = "Explains a preset of policy-loss: what it computes, where it was published, the value of every option "
                       "(required if none was published), and which gradient its KL terms have in expectation. The operations of "
                       "rein objective can be explained too, the losses of preference-loss, and every option of rein run: what it "
                       "does, its default, and its "
                       "value in every preset. rein explain symbols lists the symbols of the formulas.",
        .options = {{"all", NULL, "print one table of all presets"}, {"json", NULL, "print JSON"}},
        .max_words = 1,
        .word = cli_explained_at,
        .explains = 1,
        .example = "rein explain grpo",
        .run = cli_run_explain,
    },
    {
        .name = "generate",
        .usage = "--model DIR --prompt TEXT [OPTION...]",
        .summary = "responses of a model to a prompt",
        .description =
            "Samples from a model in the format of Hugging Face (config.json, safetensors, tokenizer.json; rein inspect says "
            "whether it is supported). A single response is printed while it is sampled. Several are printed one after the "
            "other, with a line on standard error before each. The prompt is not repeated. A model without tokenizer.json takes "
            "--prompt-ids and prints token ids.\n"
            "The drawn token depends only on seed, prompt, sample number and position, not on threads or the number of samples. "
            "The log-probabilities of --json are bit for bit those of training and of rein score.\n"
            "In a plain prompt, special tokens that are spelled out are special tokens; in a chat they are text.",
        .options =
            {{MODEL},
             {ADAPTER},
             {QUANTIZE},
             {"prompt", "TEXT", "the prompt; \"\" is only the begin token, if the model has one"},
             {"prompt-file", "FILE", "read the prompt from a file (- is standard input), without the newline at its end"},
             {"prompt-ids", "IDS", "the prompt as token ids: 1,2,3"},
             {"messages", "FILE",
              "a chat, as JSON: [{\"role\": \"user\", \"content\": \"...\"}, ...]; or {\"messages\": [...], \"tools\": [...]}"},
             {"chat", NULL, "the prompt is a user's message in the model's chat template"},
             {CHAT_FORMAT},
             {"system", "TEXT", "chat with this system message"},
             {"no-thinking", NULL, "chat without thinking (qwen3, and templates that read enable_thinking)"},
             {"samples", "N", "number of responses (default 1)"},
             {"max-tokens", "N", "maximum length of a response (default 256)"},
             {"temperature", "T", "temperature of the policy (default: the run's, or 1); 0 is --greedy at temperature 1"},
             {"greedy", NULL, "always take the most probable token"},
             {"top-k", "K", "sample from the K most probable tokens"},
             {"top-p", "P", "sample from the most probable tokens whose sum reaches P"},
             {"min-p", "P", "sample from the tokens with at least P times the greatest probability"},
             {"stop", "TEXT", "end a response before this text; may be repeated"},
             {"ignore-end", NULL, "continue after the model's end tokens"},
             {"seed", "N", "seed of the samples (default 1); the same seed gives the same samples"},
             {THREADS},
             {"top-log-probs", "N", "with --json: the N most probable tokens at each position"},
             {"json", NULL,
              "print one JSON object a line for each sample: sample, prompt_ids, response_ids, logprobs, text and finish "
              "(end, stop, length or context); sampler_logprobs if the sampler differs from the policy; top_logprobs"}},
        .repeats = "stop",
        .example = "rein generate --model stories260K --prompt 'Once upon a time' --max-tokens 80",
        .run = cli_run_generate,
    },
    {
        .name = "score",
        .usage = "--model DIR [--text TEXT | --file FILE | --ids IDS | LINES]",
        .summary = "log-probabilities of given texts under a model",
        .description =
            "Prints one JSON object for each text: ids, tokens (as tokenizer.json spells them), logprobs (null for the first "
            "token, which has none), and their sum, mean and perplexity.\n"
            "LINES is a file with one JSON object a line (standard input by default, or -): {\"text\": ...}, {\"ids\": [...]}, "
            "{\"prompt\": ..., \"response\": ...} or {\"prompt_ids\": [...], \"response_ids\": [...]}. After a prompt only the "
            "response is scored; it is tokenized by itself. The lines of rein generate --json are valid input.\n"
            "A text gets the model's begin token, and special tokens that it spells out are special tokens. Each line is printed "
            "as soon as it is scored. The first wrong line ends the command with status 2 and a message that names the line and "
            "the field.",
        .options = {{MODEL},
                    {ADAPTER},
                    {QUANTIZE},
                    {"text", "TEXT", "score this text"},
                    {"file", "FILE", "score the text of a file (- is standard input), without the newline at its end"},
                    {"ids", "IDS", "score these token ids: 1,2,3"},
                    {"temperature", "T", "temperature of the policy (default 1)"},
                    {"entropy", NULL, "also print the entropy of the distribution at each token"},
                    {ERROR_JSON},
                    {THREADS}},
        .max_words = 1,
        .example = "echo '{\"prompt\": \"Once upon\", \"response\": \"a time\"}' |\n    rein score --model stories260K",
        .run = cli_run_score,
    },
    {
        .name = "inspect",
        .usage = "DIR|FILE [--model DIR] [OPTION...]",
        .summary = "what is in a model, an adapter, a run or a file of trajectories",
        .description =
            "Opens a model (config.json, safetensors, and tokenizer.json if it exists) and describes it: its sizes, the parts "
            "of its layers, the modules that can train, and an estimate of the memory for sampling and for training (an adapter "
            "of rank 8, all weights). Or reads the files of a LoRA adapter (adapter_config.json, adapter_model.safetensors). "
            "With --model the adapter is opened with that model; if it does not fit, a message says why and the exit status is "
            "2.\n"
            "For a run it shows settings, steps, the last metrics and every checkpoint, verified. For a checkpoint "
            "(RUN/checkpoints/0007) it lists the contents; if it is damaged, the exit status is 1.\n"
            "For trajectory groups (JSON lines, of rein or of ART; - is standard input) it shows counts, rewards and lengths, "
            "warns about groups that would teach nothing, and marks the tokens that train. Messages, and texts in place of "
            "token ids, need the tokenizer of --model.",
        .options = {{"model", "DIR", "model that an adapter must fit, or whose tokenizer the trajectories need"},
                    {"tokens", "N", "tokens of a sequence, for the estimates of memory (default 1024, or the context)"},
                    {"samples", "N", "sequences that are sampled at once, for the same (default 8)"},
                    {CHAT_FORMAT},
                    {"json", NULL, "print JSON"}},
        .max_words = 1,
        .example = "rein inspect stories260K",
        .run = cli_run_inspect,
    },
    {
        .name = "run",
        .usage = "RUN [--model DIR --task TASK] [SETTING...]",
        .summary = "reinforcement learning: sample, reward, train, evaluate",
        .description =
            "Trains a model on its own attempts. In each step the model writes several completions to each of a number of "
            "prompts, the completions are rewarded, and the objective makes the better ones more likely. RUN is the directory "
            "of the run. A new run needs --model and --task. An existing run resumes where it stopped, with its own settings: "
            "rein run RUN is enough, and the result is the same as without the interruption.\n"
            "--task is a built-in task (rein task lists them), a file of JSON lines ({\"prompt\": ..., \"answer\": ...}), or a "
            "program. --reward is a verifier (task, exact, number, regex:PATTERN, length:N), a reward model (model:RUN or "
            "model:DIR) or a program; several rewards are added, weighted by --reward-weights.\n"
            "The policy is evaluated on held-out prompts before the first step, every --eval-steps steps and at the end. Ctrl-C "
            "ends the run after the current step; a second Ctrl-C ends it at once, and that step is lost.\n"
            "At the end RUN contains summary.json and report.html, and RUN/checkpoints the adapters, in the format of PEFT.",
        .options = {{CONFIG},
                    {FORK},
                    {ACCEPT_CHANGED},
                    {TRUST},
                    {"dry-run", NULL,
                     "check everything, show what will be asked and trained and how long a step takes, write nothing"},
                    {"json", NULL, "print one JSON object at the end: step, checkpoint, base, final"}},
        .max_words = 1,
        .settings = CLI_SETTINGS_LOOP,
        .example = "rein run my-run --model models/sums --task sums --preset k2 --tau 0.5 \\\n"
                   "    --token-budget 36 --budget-penalty-coef 0.02 --max-tokens 96 \\\n"
                   "    --learning-rate 2e-3 --steps 60",
        .ranks = 1,
        .run = cli_run_run,
    },
    {
        .name = "eval",
        .usage = "RUN[@STEP] | --model DIR --task TASK [SETTING...]",
        .summary = "a policy on a task: accuracy, lengths, confidence",
        .description =
            "Evaluates a policy on held-out prompts, sampled or greedy. RUN is a run of rein run: the policy is its last "
            "checkpoint, or that of STEP; the task, the rewards and all other settings are those of the run. Without a run, "
            "--model and --task select what is evaluated.\n"
            "--against names a second policy (RUN@STEP, or \"base\" for the model without its adapter). It gets the same prompts "
            "with the same random numbers. The difference has its own confidence interval, over prompts.\n"
            "Accuracy is the share of completions to which the first reward gave 1 or more; pass@k is the unbiased estimate.",
        .options = {{"against", "RUN@STEP", "a second policy to compare with; \"base\": the model without an adapter"},
                    {"greedy", NULL, "take the most probable token, one completion a prompt"},
                    {"k", "K", "the k of pass@k (default: --eval-samples)"},
                    {CONFIG},
                    {ACCEPT_CHANGED},
                    {TRUST},
                    {"json", NULL,
                     "print one JSON object: accuracy, accuracy_low, accuracy_high, pass_at_k, mean_length, share_over_budget, n"}},
        .max_words = 1,
        .settings = CLI_SETTINGS_EVALUATION,
        .example = "rein eval --model models/sums --task sums --eval-prompts 500 --max-tokens 96",
        .run = cli_run_eval,
    },
    {
        .name = "chat",
        .usage = "MODEL|RUN[@STEP] | --url URL [NAME] [OPTION...]",
        .summary = "a conversation with a policy in the terminal",
        .description =
            "Reads messages, one line each, and prints the answers. The conversation is rendered with the chat template of the "
            "model; a run gives its newest policy, or that of STEP.\n"
            "/base prints what the model without the adapter answers to the last message, /reset begins a new conversation, /exit "
            "ends it. Ctrl-C ends an answer, or the conversation.",
        .options = {{ADAPTER},
                    {QUANTIZE},
                    {"url", "URL",
                     "talk to a rein serve at http://HOST:PORT; NAME is one of its models (default: the newest policy). The key is "
                     "in the variable REIN_API_KEY"},
                    {"system", "TEXT", "the system message"},
                    {CHAT_FORMAT},
                    {"no-thinking", NULL, "chat without thinking (qwen3, and templates that read enable_thinking)"},
                    {"temperature", "T", "temperature of the policy (default: the run's, or 1); 0 takes the most probable tokens"},
                    {"top-p", "P", "sample from the most probable tokens whose sum reaches P"},
                    {"max-tokens", "N", "maximum length of an answer (default 1024)"},
                    {"seed", "N", "seed of the answers (default 1)"},
                    {THREADS}},
        .max_words = 1,
        .example = "echo 'What is 2 + 3?' | rein chat SmolLM2-135M-Instruct",
        .run = cli_run_chat,
    },
    {
        .name = "serve",
        .usage = "[RUN] [--model DIR] [OPTION...] [SETTING...]",
        .summary = "a policy behind OpenAI's API, trained over HTTP",
        .description =
            "Answers requests of OpenAI clients over HTTP: chat and text completions, streams, tools, "
            "log-probabilities. The first line on stdout is the address.\n"
            "With RUN clients can also train it, by POST /v1/train or with ART. A new run needs --model; the settings are "
            "those of rein train. Without RUN the model of --model is served as it is.\n"
            "NAME is the newest policy, NAME@STEP that of a checkpoint, base the model without an adapter. SIGTERM or "
            "Ctrl-C stops: requests under way finish first.\n"
            "In a browser the address is a live page: curves of the run, samples, the training queue, and two policies to "
            "talk to, side by side.\n"
            "The server listens on this machine only; any other --host needs an API key.",
        .options = {{"adapter", "NAME=DIR", "serve an adapter under this name; may be repeated"},
                    {"name", "NAME", "name of the policy (default: that of the directory)"},
                    {"host", "ADDRESS", "address to listen on (default 127.0.0.1)"},
                    {"port", "N", "port to listen on (default 8000); 0: any free port"},
                    {"api-key-file", "FILE", "ask clients for the key in this file (default: the variable REIN_API_KEY)"},
                    {"tls-cert", "FILE", "certificate for HTTPS (PEM)"},
                    {"tls-key", "FILE", "its private key (PEM)"},
                    {"max-concurrent", "N", "samples decoded at a time (default 64)"},
                    {"queue", "N", "requests that may wait besides (default 256); more are refused with 429"},
                    {"max-body", "MB", "largest request (default 16; with RUN 256)"},
                    {"prefix-cache", "MB", "memory for prompts that begin alike (default 512); 0: none"},
                    {"adapter-cache", "N", "adapters of steps that stay open (default 8)"},
                    {"adapter-root", "DIR", "clients may load adapters from below this directory"},
                    {"grace", "SECONDS", "time that requests under way have when the server stops (default 30)"},
                    {"always-logprobs", NULL, "send log-probabilities whether asked for or not"},
                    {"tokens-as-ids", NULL, "write tokens as token_id:N in log-probabilities"},
                    {"retokenize", NULL, "encode the text of earlier answers again instead of using the sampled ids"},
                    {CONFIG},
                    {ACCEPT_CHANGED},
                    {TRUST},
                    {"json", NULL, "print the address as JSON: url, port, model"}},
        .repeats = "adapter",
        .max_words = 1,
        .settings = CLI_SETTINGS_TRAINING,
        .example = "rein serve --model models/sums --port 8000",
        .run = cli_run_serve,
    },
    {
        .name = "export",
        .usage = "MODEL|RUN[@STEP] [--adapter DIR] --to DIR|FILE.gguf",
        .summary = "a policy as a model directory or a GGUF file for other programs",
        .description =
            "--to DIR writes a model in the format of Hugging Face: the weights, with the adapter merged into them, config.json "
            "and the tokenizer. Weights that were stored in 16 bits are rounded to that type again. DIR may exist if it holds "
            "no model.\n"
            "--to FILE.gguf writes the same as one GGUF file, for llama.cpp and Ollama. --type is f32, f16, bf16, q8_0 or q4_0; "
            "the default is bf16 if the model has it, else f16. Blocks are rounded as ggml's reference does, and the error is "
            "printed. With q4_0 the head is q8_0. FILE must not exist.\n"
            "--adapter-only writes the adapter alone: a directory of PEFT, or a GGUF file for llama.cpp's --lora.\n"
            "Prints the path; on stderr, which program loads it, with a command to try.",
        .options = {{"to", "PATH", "the directory, or the file named *.gguf, to write"},
                    {"type", "TYPE", "of a GGUF file: f32, f16, bf16, q8_0 or q4_0"},
                    {"adapter-only", NULL, "write the adapter alone, not merged"},
                    {ADAPTER},
                    {ERROR_JSON}},
        .max_words = 1,
        .example = "rein export my-run --to my-model.gguf --type q8_0",
        .run = cli_run_export,
    },
    {
        .name = "bundle",
        .usage = "RUN[@STEP] [--output FILE]",
        .summary = "one archive of a run, to send to others",
        .description =
            "Writes a tar file with the settings, history, evaluations, summary and report of a run, and the adapter (or the "
            "model, if all weights trained) of its newest checkpoint, or that of STEP. The optimizer stays behind: the "
            "archive is for using and looking at, not for resuming. Prints the name of the file.",
        .options = {{"output", "FILE", "the archive (default: RUN.tar)"}, {ERROR_JSON}},
        .max_words = 1,
        .example = "rein bundle my-run",
        .run = cli_run_bundle,
    },
    {
        .name = "watch",
        .usage = "RUN [--once]",
        .summary = "the progress of a run, live in the terminal",
        .description = "Shows the progress of a run, its metrics and small curves, and follows it until its last step or Ctrl-C. "
                       "It changes nothing in the run, so any number of people may watch.",
        .options = {{"once", NULL, "show the current state, then exit"}},
        .max_words = 1,
        .example = "rein watch my-run",
        .run = cli_run_watch,
    },
    {
        .name = "train",
        .usage = "RUN --groups FILE [--model DIR] [SETTING...]",
        .summary = "one step of a run on recorded trajectory groups",
        .description = "Trains on trajectory groups, one JSON object a line: token ids, or messages in the format of ART. RUN is "
                       "the directory of the run. A new run needs --model; an existing one resumes from its last good "
                       "checkpoint, with its settings and those given now.\n"
                       "One step is one pass over all groups, or --epochs passes of --minibatches parts each. At its end a new "
                       "checkpoint, the trajectories and a line of RUN/history.jsonl are on the disk. Errors in the options or the "
                       "groups are reported before anything is written.\n"
                       "--config FILE.yaml takes the same settings, with _ in place of the dashes inside a name (lora_rank: 8).",
        .options = {{"groups", "FILE", "the trajectory groups"},
                    {CONFIG},
                    {FORK},
                    {CHAT_FORMAT},
                    {ACCEPT_CHANGED},
                    {TRUST},
                    {DRY_RUN},
                    {"json", NULL, "print one JSON object: step, nothing_to_train, checkpoint, metrics"}},
        .max_words = 1,
        .settings = CLI_SETTINGS_TRAINING,
        .example = "rein train my-run --model stories260K --groups groups.jsonl --preset grpo",
        .ranks = 1,
        .run = cli_run_train,
    },
    {
        .name = "sft",
        .usage = "RUN --data FILE [--model DIR] [SETTING...]",
        .summary = "supervised training on chats, or prompts and completions",
        .description =
            "Trains an adapter, or all weights with --full, on examples. FILE has one JSON object a line: {\"messages\": [...]} in "
            "the format of OpenAI, of which the assistant's turns train; {\"prompt\": ..., \"completion\": ...}, of which the "
            "completion and the end token train; or {\"prompt_ids\": [...], \"response_ids\": [...]}.\n"
            "RUN is the directory of the run. A new run needs --model. An existing run resumes where it stopped, with its own "
            "settings: rein sft RUN is enough, and the result is the same as without the interruption. Ctrl-C ends it after the "
            "current step; a second Ctrl-C ends it at once. Every step is saved, or every Nth (--save-steps N) and the last; the "
            "last three checkpoints and the first are kept (--keep-last).\n"
            "The loss is the mean negative log-likelihood of the tokens that train. Errors in the options or the data are reported "
            "before anything is written.",
        .options = {{"data", "FILE", "the examples"}, {"batch-size", "N", "examples in a step (default 8)"}, OF_PASSES},
        .max_words = 1,
        .settings = CLI_SETTINGS_TRAINING,
        .example = "rein sft my-run --model stories260K --data examples.jsonl --learning-rate 1e-4",
        .ranks = 1,
        .run = cli_run_sft,
    },
    {
        .name = "dpo",
        .usage = "RUN --data FILE [--model DIR] [--loss NAME] [SETTING...]",
        .summary = "training on preferences: pairs of answers, or labelled answers",
        .description =
            "Trains an adapter, or all weights with --full, on pairs. FILE has one JSON object a line: {\"prompt\": ..., "
            "\"chosen\": ..., \"rejected\": ...}, as texts or as lists of messages; without a prompt, what both answers begin "
            "with is the prompt.\n"
            "--loss is dpo, cdpo, robust, hinge, ipo_mean, ipo_sum, simpo, cpo, orpo or kto: rein explain LOSS has its formula. "
            "For kto a line is {\"prompt\": ..., \"completion\": ..., \"label\": true or false}. The reference is the model "
            "without the adapter (with --full: the weights that the run starts from), an adapter (--kl-ref-adapter-path), or a "
            "checkpoint of the run (--kl-penalty-reference-step, --kl-penalty-step-lag); its log-probs are computed once.\n"
            "RUN is the directory of the run. A new run needs --model. An existing run resumes where it stopped, with its own "
            "settings: rein dpo RUN is enough, and the result is the same as without the interruption. Errors in the options or "
            "the data are reported before anything is written.",
        .options = {{"data", "FILE", "the pairs; for kto labelled completions"},
                    {"loss", "NAME", "the loss over preferences (default dpo)"},
                    {"beta", "X", "beta of the loss (default 0.1; simpo 2)"},
                    {"label-smoothing", "X", "share of wrong labels, for cdpo and robust, which need it"},
                    {"simpo-gamma", "X", "margin of simpo (default 0.5)"},
                    {"cpo-alpha", "X", "weight of the log-likelihood in cpo (default 1)"},
                    {"desirable-weight", "X", "weight of desirable completions in kto (default 1)"},
                    {"undesirable-weight", "X", "weight of undesirable completions in kto (default 1)"},
                    {"batch-size", "N", "pairs or completions in a step (default 8)"},
                    OF_PASSES},
        .max_words = 1,
        .settings = CLI_SETTINGS_TRAINING,
        .example = "rein dpo my-run --model stories260K --data pairs.jsonl --learning-rate 1e-5",
        .ranks = 1,
        .run = cli_run_dpo,
    },
    {
        .name = "reward",
        .usage = "RUN --data FILE [--model DIR] [--held-out FILE] [SETTING...]",
        .summary = "a reward model from pairs of answers, for --reward model:RUN",
        .description =
            "Trains a reward model, an adapter or all weights with --full, on pairs (Bradley-Terry). FILE has one JSON object a "
            "line: {\"prompt\": ..., \"chosen\": ..., \"rejected\": ...}, as texts or as lists of messages; without a prompt, "
            "what both answers begin with is the prompt. \"margin\", a number, is by how much the reward of chosen should be "
            "greater.\n"
            "The reward is a score at the last token of what the chat template renders of prompt and answer; a plain text gets "
            "the end token. --model is a language model, which gets a new score head, or a reward model.\n"
            "Checkpoints are models that transformers loads (...ForSequenceClassification), or adapters of PEFT (SEQ_CLS). rein "
            "run --reward model:RUN rewards with the newest, model:RUN@STEP with that of STEP. The held-out pairs are evaluated "
            "after each epoch.\n"
            "An existing run resumes where it stopped, with its own settings: rein reward RUN is enough, and the result is the "
            "same as without the interruption. Errors in the options or the data are reported before anything is written.",
        .options = {{"data", "FILE", "the pairs"},
                    {"held-out", "FILE", "pairs that do not train: accuracy, margin, loss and calibration error"},
                    {"center-rewards-coefficient", "X", "weight of the squared sum of a pair's rewards (default 0; 0.01 is usual)"},
                    {"batch-size", "N", "pairs in a step (default 8)"},
                    OF_PASSES},
        .max_words = 1,
        .settings = CLI_SETTINGS_TRAINING,
        .example = "rein reward my-judge --model stories260K --data pairs.jsonl --learning-rate 1e-4",
        .ranks = 1,
        .run = cli_run_reward,
    },
    {
        .name = "distill",
        .usage = "RUN --data FILE [--model DIR --teacher DIR] [SETTING...]",
        .summary = "a model learns from a larger one with the same vocabulary",
        .description =
            "Trains an adapter, or all weights with --full, to give the probabilities of a teacher: a model with the same "
            "vocabulary, which is compared token by token. FILE has examples as for rein sft.\n"
            "The loss is a divergence between the two distributions over the whole vocabulary at every token that trains: "
            "--divergence forward (the default), reverse, or jsd with --jsd-beta; both are softmax(z/T), T is --temperature. "
            "With --lambda X a step takes, with this probability, completions that the model writes itself for the prompts of "
            "FILE, in place of the given ones (GKD); --lambda 1 --divergence sampled is on-policy distillation with the sampled "
            "tokens alone.\n"
            "RUN is the directory of the run. A new run needs --model and --teacher. An existing run resumes where it stopped, "
            "with its own settings: rein distill RUN is enough, and the result is the same as without the interruption. Errors "
            "in the options or the data are reported before anything is written. rein run --teacher learns from a teacher "
            "beside a reward.",
        .options = {{"data", "FILE", "the examples"},
                    {"lambda", "X", "probability that a step takes the model's own completions (default 0)"},
                    {"max-new-tokens", "N", "length at which an own completion is cut (default 128)"},
                    {"nll-coef", "X", "weight of the log-likelihood of the given completions in the loss (default 0)"},
                    {"batch-size", "N", "examples in a step (default 8)"},
                    OF_PASSES},
        .max_words = 1,
        .settings = CLI_SETTINGS_TRAINING,
        .example = "rein distill my-run --model small --teacher large --data examples.jsonl --divergence jsd --lambda 0.5",
        .ranks = 1,
        .run = cli_run_distill,
    },
    {
        .name = "init",
        .usage = "DIR [--seed N]",
        .summary = "random weights for a config.json, to train from the beginning",
        .description =
            "Writes DIR/model.safetensors for the config.json in DIR, with the initial weights of Hugging Face's models. The same "
            "seed gives the same weights. Existing weights are never overwritten. rein sft --full trains them.",
        .options = {{"seed", "N", "seed of the weights (default 1)"}},
        .max_words = 1,
        .example = "rein init my-model --seed 1",
        .run = cli_run_init,
    },
    {
        .name = "report",
        .usage = "RUN... [--output FILE]",
        .summary = "one HTML file about a run, or several runs side by side",
        .description = "Writes a page that needs nothing but a browser: the results, the curves, sampled completions with each "
                       "token coloured by its advantage, the same held-out prompts before and after, and the settings. Several "
                       "runs are drawn over each other and compared. The page leaves out what a run does not have, so an "
                       "unfinished run can be reported too. The path of the file is printed.",
        .options = {{"output", "FILE", "the file to write (default: report.html in RUN; needed for several runs)"}},
        .max_words = CLI_MAX_WORDS,
        .example = "rein report my-run",
        .run = cli_run_report,
    },
    {
        .name = "task",
        .usage = "[NAME|FILE|COMMAND] [OPTION...]",
        .summary = "examples of a task, and demonstrations of the answers",
        .description =
            "Shows examples of a task: a built-in task by its name, a file of JSON lines (NAME.jsonl), or a program that generates "
            "them (a command that contains a blank or a slash). Without a task it lists the built-in tasks.\n"
            "Examples are numbered from 0 and are the same every time. Held-out examples are never used in training. An example in "
            "a file is {\"prompt\": TEXT} or {\"messages\": [...]}, with optional \"answer\", \"budget\" and other keys.",
        .options =
            {{"count", "N", "number of examples (default 5)"},
             {"from", "N", "number of the first example (default 0)"},
             {"split", "NAME", "train (default) or held-out"},
             {"seed", "N", "seed of a built-in task or a program (default 1); another seed gives other examples"},
             {"held-out", "P", "file: share of its examples to hold out, about (default: none)"},
             {"timeout", "S", "program: seconds it may take for an example (default 30)"},
             {"demonstrations", NULL, "built-in task: also show a completion, as used for supervised training"},
             {"json", NULL,
              "print one JSON object a line, as in a file; with --demonstrations prompt and completion, as rein sft reads them"}},
        .max_words = 1,
        .word = cli_task_word,
        .example = "rein task sums --demonstrations",
        .run = cli_run_task,
    },
    {
        .name = "bench",
        .usage = "[ROW...] [--rounds N] [--peer NAME=COMMAND]... [--json]",
        .summary = "speed, compared with the machine's limits and other programs",
        .description =
            "Measures the rows of the performance table, each in its own process, and the limit of the machine directly before or "
            "after it. Each row shows the share of that limit, or of the target value. ROW is the name of a row or its "
            "beginning (train, \"decode smollm\"). Without a ROW all rows are measured, which takes some minutes.\n"
            "A peer is a program that can do the same work. It is run as COMMAND ROW, directly before or after the row, and prints "
            "{\"value\": NUMBER} in the row's unit, with \"memory\": MB if known, or {} for a row that it cannot do. The figure "
            "after its name says how many times better rein is.\n"
            "Models with random weights are written to a temporary directory ($TMPDIR, or /tmp), which needs about a gigabyte.",
        .options = {{"list", NULL, "print the names of the rows, and what they measure"},
                    {"rounds", "N", "take the best of N rounds (default: as many as take some seconds)"},
                    {"peer", "NAME=COMMAND", "another program that does the same work; may be repeated"},
                    {"json", NULL, "print a JSON array: name, value, unit, limit, share_of_limit and peers of each row"}},
        .repeats = "peer",
        .max_words = CLI_MAX_WORDS,
        .word = bench_word,
        .example = "rein bench fma read triad start",
        .run = cli_run_bench,
    },
    {
        .name = "completion",
        .usage = "bash|zsh|fish",
        .summary = "completion of commands, options and names for your shell",
        .description = "Prints a script for the shell to read, for example from its start-up file.",
        .max_words = 1,
        .word = cli_shell_at,
        .example = "source <(rein completion bash)",
        .run = cli_run_completion,
    },
    {
        .name = "help",
        .usage = "[COMMAND] [--man]",
        .summary = "this help, the help of a command, or the manual page",
        .description = "The same as rein --help or rein COMMAND --help. With --man it prints the manual page (roff).",
        .options = {{"man", NULL, "print the manual page"}},
        .max_words = 1,
        .word = cli_command_word,
        .example = "rein help --man > rein.1",
        .run = cli_run_help,
    },
};

const cli_command *cli_command_at(size_t i) { return i < sizeof COMMANDS / sizeof *COMMANDS ? &COMMANDS[i] : NULL; }

const char *cli_command_word(size_t i) { return cli_command_at(i) ? cli_command_at(i)->name : NULL; }

const cli_command *cli_command_named(const char *name) {
    const cli_command *command;
    for (size_t i = 0; (command = cli_command_at(i)) && strcmp(command->name, name) != 0; i++) {
    }
    return command;
}

cli_option cli_command_option(const cli_command *command, size_t i) {
    const cli_setting *s;
    size_t n = 0;
    for (; n < CLI_MAX_OPTIONS && command->options[n].name; n++)
        if (n == i) return command->options[n];
    for (size_t k = 0; (s = cli_setting_at(k)); k++)
        if (cli_shows_setting(command, s) && n++ == i) return (cli_option){s->option, s->value, s->help};
    return (cli_option){0};
}

int cli_own_option(const cli_command *command, const char *name, size_t length) {
    for (int i = 0; i < CLI_MAX_OPTIONS && command->options[i].name; i++)
        if (strlen(command->options[i].name) == length && !strncmp(command->options[i].name, name, length)) return i;
    return -1;
}

const char *cli_option_value(const cli_args *args, const char *name) {
    const int i = cli_own_option(args->command, name, strlen(name));
    return i < 0 ? NULL : args->values[i];
}

void cli_help(rein_text *out) {
    const cli_command *command;
    rein_text_format(out,
                     "rein %s: reinforcement learning of language models\n"
                     "with token budgets, trust regions and KL to a reference.\n\n",
                     rein_version());
    rein_text_put(out, "Usage: rein COMMAND [OPTION...] [ARGUMENT...]\n\nCommands:\n");
    for (size_t i = 0; (command = cli_command_at(i)); i++) rein_text_format(out, "  %-12s%s\n", command->name, command->summary);
    rein_text_put(out, "\nOptions:\n  --help      show this help, or the help of a command\n"
                       "  --version   print the version\n\n"
                       "Environment:\n"
                       "  REIN_KERNEL=ref   compute without vector instructions: the same result, slower\n"
                       "  NO_COLOR=1        no colours, even on a terminal\n\n"
                       "Data goes to standard output, everything else to standard error.\n"
                       "Exit status: 0 success, 1 failure, 2 wrong usage or input.\n\n"
                       "Start with:\n  rein demo\n");
}

static size_t option_columns(const char *name, const char *value) { return 4 + strlen(name) + (value ? 1 + strlen(value) : 0); }

/* One option and its help, which begins in `column`; on the next line if the name is too long. */
static void help_option(rein_text *out, const char *name, const char *value, const char *help, size_t column) {
    const size_t columns = option_columns(name, value);
    rein_text_format(out, "  --%s%s%s", name, value ? " " : "", value ? value : "");
    if (columns + 2 > column) rein_text_put(out, "\n");
    rein_text_repeat(out, " ", columns + 2 > column ? column : column - columns);
    cli_wrap(out, column, WIDTH, help);
}

static void put_setting(rein_text *out, const char *name, const char *value, const char *help) {
    help_option(out, name, value, help, 32);
}

void cli_help_command(rein_text *out, const cli_command *command) {
    const cli_option *end = command->options + CLI_MAX_OPTIONS;
    size_t column = 16;
    for (const cli_option *o = command->options; o < end && o->name; o++)
        if (option_columns(o->name, o->value) + 2 > column) column = option_columns(o->name, o->value) + 2;
    rein_text_format(out, "Usage: rein %s %s\n\n", command->name, command->usage);
    cli_wrap(out, 0, WIDTH, command->description);
    rein_text_put(out, "\nOptions:\n");
    for (const cli_option *o = command->options; o < end && o->name; o++) help_option(out, o->name, o->value, o->help, column);
    help_option(out, "help", NULL, "show this help", column);
    if (command->operations) operations_help(out);
    if (command->settings) cli_put_settings(out, command, "\n", ":", put_setting);
    rein_text_format(out, "\nExample:\n  %s\n", command->example);
}

int cli_run_help(const cli_args *args) {
    rein_text out = {0};
    const int man = cli_option_value(args, "man") != NULL;
    const char *name = args->n_words ? args->words[0] : NULL;
    const cli_command *command = name ? cli_command_named(name) : NULL;
    if (name && man) return cli_say(CLI_WRONG, "help", "--man prints the whole manual: leave out \"%s\"", name);
    if (name && !command) return cli_say_unknown("help", "command", name, cli_command_word, "rein help lists the commands");
    if (man) cli_man(&out);
    else if (command) cli_help_command(&out, command);
    else cli_help(&out);
    return cli_print(&out);
}
