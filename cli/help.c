/* help.c - the table of commands, and the help that is printed from it. */
#include "help.h"

#include <string.h>

#include "nearest.h"
#include "objective.h"
#include "rein/rein.h"
#include "settings.h"
#include "terminal.h"
#include "wrap.h"

enum { WIDTH = 80 };

static const char *operation_word(size_t i) {
    const rein_operation *operation = rein_operation_at(i);
    return operation ? operation->name : NULL;
}

static const char *command_word(size_t i) {
    const rein_command *command = rein_command_at(i);
    return command ? command->name : NULL;
}

/* The operations of `rein objective`, with what each takes and gives. */
static void operations_help(rein_text *out) {
    const rein_operation *o;
    rein_text_put(out, "\nOperations:\n");
    for (size_t i = 0; (o = rein_operation_at(i)); i++) {
        const char *rows[][2] = {{"takes", o->arguments}, {"gives", o->results}, {"--grad", o->gradients}};
        rein_text_format(out, "  %-15s%s\n", o->name, o->summary);
        for (size_t r = 0; r < 3; r++) {
            if (!rows[r][1]) continue;
            rein_text_format(out, "    %-8s", rows[r][0]);
            rein_wrap(out, 12, WIDTH, rows[r][1]);
        }
    }
}

static const rein_command COMMANDS[] = {
    {
        .name = "demo",
        .usage = "[RUN] [--seed N] [--steps N] [--threads N] [--model DIR]",
        .summary = "the shipped model learns, under a token budget, while you watch",
        .description =
            "A small language model that adds digits, about half of the time right and too long-winded, learns from its own "
            "attempts "
            "with Kimi K2's budget-constrained loss and a KL penalty to where it began; then once more with a stronger penalty, to "
            "show "
            "what that costs. It takes about a minute. RUN (rein-demo, or the next number where there is one) and RUN-kl then have "
            "everything that rein run leaves: summary.json, report.html, the adapters. One that was stopped goes on.\n"
            "The figures are of prompts it never trained on. The same seed gives the same weights.",
        .options = {{"seed", "N", "of everything random (default 1)"},
                    {"steps", "N", "of training (default 40)"},
                    {"threads", "N", "use at most N threads (default: every core); the result is the same"},
                    {"model", "DIR", "the shipped model, models/sums, if it is not beside the program"}},
        .max_words = 1,
        .example = "rein demo",
        .run = rein_run_demo,
    },
    {
        .name = "objective",
        .usage = "NAME [--grad] [--threads N] [FILE]",
        .summary = "one operation on a JSON object of its arguments",
        .description =
            "Reads one JSON object from FILE (standard input by default, or when FILE is -), computes the operation in double "
            "precision and prints one JSON object. Numbers are printed so that they read back exactly.\n"
            "Every argument is checked before anything is printed: a mistake is one line on standard error that names the field, "
            "its position and what would be right, and the exit status is 2.",
        .options = {{"grad", NULL, "also print the exact gradient"},
                    {"json", NULL, "print an error as JSON too, on standard error"},
                    {"threads", "N", "use at most N threads (default: every core); the result is the same"}},
        .max_words = 2,
        .word = operation_word,
        .operations = 1,
        .example = "echo '{\"rewards\": [[1, 0.5]], \"log_probs\": [[-1, -1.5]],\n"
                   "    \"old_log_probs\": [[-1.2, -1.3]], \"response_lengths\": [[150, 80]],\n"
                   "    \"token_budget\": 100, \"kl_coef\": 0.1, \"budget_penalty_coef\": 0.01}' |\n"
                   "    rein objective budget-loss --grad",
        .run = rein_run_objective,
    },
    {
        .name = "explain",
        .usage = "PRESET|OPERATION [--json], or --all [--json]",
        .summary = "a method: its formula, its source, its defaults, what is biased",
        .description =
            "Says what a preset of policy-loss computes, where it was published, which value every option has (or that it must be "
            "given, where none was published), and which gradient its KL terms have in expectation. The operations of rein "
            "objective can be explained too.",
        .options = {{"all", NULL, "one table of all presets"}, {"json", NULL, "print JSON"}},
        .max_words = 1,
        .word = rein_explained_at,
        .example = "rein explain grpo",
        .run = rein_run_explain,
    },
    {
        .name = "generate",
        .usage = "--model DIR --prompt TEXT [OPTION...]",
        .summary = "responses of a model to a prompt",
        .description =
            "Samples from a model in Hugging Face layout (config.json, safetensors, tokenizer.json; Llama, Mistral, Qwen2 and "
            "Qwen3). "
            "One response appears as it is written; several are printed one after the other, a line on standard error before each. "
            "The prompt is not repeated. A model without tokenizer.json takes --prompt-ids and prints token ids.\n"
            "Which token is drawn depends on the seed, the prompt, the number of the sample and the position alone: not on the "
            "number of threads or of samples. The log-probabilities of --json have the bits that training computes, and rein score "
            "prints.\n"
            "In a plain prompt, special tokens that are spelled out are special tokens; in a chat they are text.",
        .options =
            {{"model", "DIR", "directory of the model"},
             {"adapter", "DIR", "LoRA adapter of the model, as PEFT writes it"},
             {"prompt", "TEXT", "the prompt; \"\" is the begin token alone, if the model has one"},
             {"prompt-file", "FILE", "the prompt, from a file (- is standard input), without the newline at its end"},
             {"prompt-ids", "IDS", "the prompt as token ids: 1,2,3"},
             {"messages", "FILE", "a chat, as JSON: [{\"role\": \"user\", \"content\": \"...\"}, ...]"},
             {"chat", NULL, "the prompt is a user's message, put into the model's chat template"},
             {"chat-format", "NAME",
              "chat in this format: raw, chatml, qwen2.5, qwen3, llama3 or llama3.1 (default: the model's own, where its "
              "template is one of them)"},
             {"system", "TEXT", "chat with this system message"},
             {"no-thinking", NULL, "chat without thinking (qwen3)"},
             {"samples", "N", "how many responses (default 1)"},
             {"max-tokens", "N", "length at which a response is cut (default 256)"},
             {"temperature", "T", "of the policy (default 1); 0 is --greedy at temperature 1"},
             {"greedy", NULL, "always the most probable token"},
             {"top-k", "K", "only among the K most probable tokens"},
             {"top-p", "P", "only among the most probable tokens whose sum reaches P"},
             {"min-p", "P", "only among tokens with P times the greatest probability or more"},
             {"stop", "TEXT", "end a response before this text; may be repeated"},
             {"ignore-end", NULL, "go on after the model's end tokens"},
             {"seed", "N", "of the samples (default 1): the same seed, the same samples"},
             {"threads", "N", "use at most N threads (default: every core); the result is the same"},
             {"top-log-probs", "N", "with --json: the N most probable tokens at each position"},
             {"json", NULL,
              "print one JSON object a line for each sample: sample, prompt_ids, response_ids, logprobs, text and finish (end, "
              "stop, length or context); sampler_logprobs when the sampler is not the policy; top_logprobs"}},
        .repeats = "stop",
        .example = "rein generate --model stories260K --prompt 'Once upon a time' --max-tokens 80",
        .run = rein_run_generate,
    },
    {
        .name = "score",
        .usage = "--model DIR [--text TEXT | --file FILE | --ids IDS | LINES]",
        .summary = "log-probabilities of given texts under a model",
        .description =
            "Prints one JSON object for each text: ids, tokens (as tokenizer.json spells them), logprobs (null for the first "
            "token, "
            "which has none), and the sum, mean and perplexity of those there are.\n"
            "LINES is a file with one JSON object a line (standard input by default, or -): {\"text\": ...}, {\"ids\": [...]}, "
            "{\"prompt\": ..., \"response\": ...} or {\"prompt_ids\": [...], \"response_ids\": [...]}. After a prompt only the "
            "response is scored; it is tokenized by itself. The lines of rein generate --json can be given as they are.\n"
            "A text begins with the model's begin token, and special tokens that it spells out are special tokens. Every line is "
            "printed as soon as it is scored; at the first wrong one the work ends, with status 2 and a message that names line "
            "and "
            "field.",
        .options = {{"model", "DIR", "directory of the model"},
                    {"adapter", "DIR", "LoRA adapter of the model, as PEFT writes it"},
                    {"text", "TEXT", "score this text"},
                    {"file", "FILE", "score the text of a file (- is standard input), without the newline at its end"},
                    {"ids", "IDS", "score these token ids: 1,2,3"},
                    {"temperature", "T", "of the policy (default 1)"},
                    {"entropy", NULL, "also print entropies, of the distribution that each token was drawn from"},
                    {"json", NULL, "print an error as JSON too, on standard error"},
                    {"threads", "N", "use at most N threads (default: every core); the result is the same"}},
        .max_words = 1,
        .example = "echo '{\"prompt\": \"Once upon\", \"response\": \"a time\"}' |\n    rein score --model stories260K",
        .run = rein_run_score,
    },
    {
        .name = "inspect",
        .usage = "DIR|FILE [--model DIR] [--chat-format NAME] [--json]",
        .summary = "what is in a model, an adapter, a run or a file of trajectories",
        .description =
            "Opens a model (config.json, safetensors, and tokenizer.json if it is there) and says what it is, or reads the files "
            "of a "
            "LoRA adapter (adapter_config.json, adapter_model.safetensors). With --model the adapter is opened as that model's: if "
            "it "
            "does not fit, a message says why and the exit status is 2.\n"
            "Of a run it shows the settings, the steps, the figures of the last one, and each checkpoint, verified; of a "
            "checkpoint "
            "(RUN/checkpoints/0007) what is in it, and what is wrong if it is not what was written: then the exit status is 1.\n"
            "Of trajectory groups (JSON lines, of rein or of ART; - is standard input) it shows counts, rewards and lengths, warns "
            "of what would teach nothing, and marks the tokens that train. Messages, and texts in place of token ids, need the "
            "tokenizer of --model.",
        .options =
            {{"model", "DIR", "model that an adapter must fit, or whose tokenizer the trajectories have"},
             {"chat-format", "NAME",
              "of messages: raw, chatml, qwen2.5, qwen3, llama3 or llama3.1 (default: the model's own, where its template is "
              "one of them)"},
             {"json", NULL, "print JSON"}},
        .max_words = 1,
        .example = "rein inspect stories260K",
        .run = rein_run_inspect,
    },
    {
        .name = "run",
        .usage = "RUN [--model DIR --task TASK] [SETTING...]",
        .summary = "reinforcement learning: sample, reward, train, evaluate",
        .description =
            "Teaches a model by its own attempts: in each step it is asked a number of prompts, writes several responses to each, "
            "these "
            "are rewarded, and the objective makes the better ones likelier. RUN is the directory of the run. A new one is begun "
            "with "
            "--model, --task and the settings below; an existing one goes on where it stopped, with all it was begun with: rein "
            "run RUN "
            "is enough, and the result is that of a run that never stopped.\n"
            "--task is a built-in task (rein task lists them), a file of JSON lines ({\"prompt\": ..., \"answer\": ...}), or a "
            "program. "
            "--reward is a verifier (task, exact, number, regex:PATTERN, length:N) or a program; several are added, with "
            "--reward-weights.\n"
            "Before the first step, every --eval-steps steps and at the end the policy is evaluated on held-out prompts. Ctrl-C "
            "ends the "
            "work after the step that is being made; a second one ends it at once, and that step is lost.\n"
            "At the end RUN has summary.json and report.html, and RUN/checkpoints the adapters, as PEFT has them.",
        .options = {{"config", "FILE", "settings, as YAML; what the command line says counts more"},
                    {"fork", "RUN@STEP", "begin RUN from a checkpoint of another run, with its settings and those given now"},
                    {"json", NULL, "print one JSON object at the end: step, checkpoint, base, final"}},
        .max_words = 1,
        .settings = REIN_SETTINGS_LOOP,
        .example = "rein run my-run --model models/sums --task sums --preset k2 --tau 0.5 \\\n"
                   "    --token-budget 36 --budget-penalty-coef 0.02 --max-tokens 96 \\\n"
                   "    --learning-rate 2e-3 --steps 60",
        .run = rein_run_run,
    },
    {
        .name = "eval",
        .usage = "RUN[@STEP] | --model DIR --task TASK [SETTING...]",
        .summary = "a policy on a task: accuracy, lengths, confidence",
        .description =
            "Asks a policy held-out prompts, by sampling or greedily, and counts. RUN is a run of rein run: the policy is its last "
            "checkpoint, or that of STEP, and the task, the rewards and everything else is as the run has it. Without a run, "
            "--model and "
            "--task say what is evaluated.\n"
            "--against names a second policy (RUN@STEP, or \"base\" for the model without its adapter), which is asked the same "
            "prompts "
            "with the same randomness; the difference has an interval of its own, over prompts.\n"
            "Accuracy is the share of the responses to which the first reward gave 1 or more; pass@k is without bias.",
        .options = {{"against", "RUN@STEP", "a second policy to compare with; \"base\": the model without an adapter"},
                    {"greedy", NULL, "the most probable token each time, one response a prompt"},
                    {"k", "K", "of pass@k (default: --eval-samples)"},
                    {"config", "FILE", "settings, as YAML; what the command line says counts more"},
                    {"json", NULL,
                     "print one JSON object: accuracy, accuracy_low, accuracy_high, pass_at_k, mean_length, "
                     "share_over_budget, n"}},
        .max_words = 1,
        .settings = REIN_SETTINGS_EVALUATION,
        .example = "rein eval --model models/sums --task sums --eval-prompts 500 --max-tokens 96",
        .run = rein_run_eval,
    },
    {
        .name = "watch",
        .usage = "RUN [--once]",
        .summary = "a run as it goes, live in the terminal",
        .description =
            "Shows the run's progress, its figures and small curves, and follows it until its last step, or Ctrl-C. Looking "
            "changes nothing: any number of people may watch while the run is being made.",
        .options = {{"once", NULL, "show it as it is now, and end"}},
        .max_words = 1,
        .example = "rein watch my-run",
        .run = rein_run_watch,
    },
    {
        .name = "train",
        .usage = "RUN --groups FILE [--model DIR] [SETTING...]",
        .summary = "one step of a run on recorded trajectory groups",
        .description =
            "Trains on trajectory groups, one JSON object a line: token ids, or messages as ART writes them. RUN is the directory "
            "of "
            "the run. A new one is begun with --model and the settings below; an existing one goes on from its last good "
            "checkpoint "
            "with the settings it has, and those given now.\n"
            "One step is one pass over all groups, or --epochs of them in --minibatches parts each. When it is done, a new "
            "checkpoint, the trajectories and a line of RUN/history.jsonl are on the disk. A mistake, in an option or in the "
            "groups, "
            "is said before anything is written.\n"
            "--config FILE.yaml takes the settings by the same names, with _ for the dashes inside (lora_rank: 8).",
        .options =
            {{"groups", "FILE", "the trajectory groups"},
             {"config", "FILE", "settings, as YAML; what the command line says counts more"},
             {"fork", "RUN@STEP", "begin RUN from a checkpoint of another run, with its settings and those given now"},
             {"chat-format", "NAME",
              "messages are in this format: raw, chatml, qwen2.5, qwen3, llama3 or llama3.1 (default: the model's own, where "
              "its template is one of them)"},
             {"dry-run", NULL, "check everything, say what would be trained, write nothing"},
             {"json", NULL, "print one JSON object: step, nothing_to_train, checkpoint, metrics"}},
        .max_words = 1,
        .settings = REIN_SETTINGS_TRAINING,
        .example = "rein train my-run --model stories260K --groups groups.jsonl --preset grpo",
        .run = rein_run_train,
    },
    {
        .name = "sft",
        .usage = "RUN --data FILE [--model DIR] [SETTING...]",
        .summary = "supervised training on chats, or prompts and completions",
        .description =
            "Trains a model to say what the data says: an adapter, or all weights with --full. FILE has one JSON object a line: "
            "{\"messages\": [...]} as OpenAI has them, of which the assistant's turns train; {\"prompt\": ..., \"completion\": "
            "...}, of "
            "which the completion and the end token train; or {\"prompt_ids\": [...], \"response_ids\": [...]}.\n"
            "RUN is the directory of the run. A new one is begun with --model and the settings below. An existing one goes on "
            "where "
            "it stopped, with all it was begun with: rein sft RUN is enough, and the result is that of a run that never stopped. "
            "Ctrl-C ends the work after the step that is being made; a second one ends it at once. Every step is saved, "
            "or every Nth (--save-steps N) and the last; three are kept, and the first one (--keep-last).\n"
            "The loss is the mean negative log-likelihood of the tokens that train. A mistake, in an option or in the data, is "
            "said "
            "before anything is written.",
        .options =
            {{"data", "FILE", "the examples"},
             {"batch-size", "N", "examples in a step (default 8)"},
             {"num-train-epochs", "N", "how often to go through the data (default 1)"},
             {"max-steps", "N", "end after this many steps, whatever the epochs are"},
             {"config", "FILE", "settings, as YAML; what the command line says counts more"},
             {"chat-format", "NAME",
              "messages are in this format: raw, chatml, qwen2.5, qwen3, llama3 or llama3.1 (default: the model's own, where "
              "its template is one of them)"},
             {"dry-run", NULL, "check everything, say what would be trained, write nothing"},
             {"json", NULL, "print one JSON object at the end: step, nothing_to_train, checkpoint, metrics of the last step"}},
        .max_words = 1,
        .settings = REIN_SETTINGS_TRAINING,
        .example = "rein sft my-run --model stories260K --data examples.jsonl --learning-rate 1e-4",
        .run = rein_run_sft,
    },
    {
        .name = "init",
        .usage = "DIR [--seed N]",
        .summary = "random weights for a config.json, to train from the beginning",
        .description =
            "Writes DIR/model.safetensors for the config.json in DIR, with the weights that Hugging Face's models begin with: "
            "the same for the same seed. Weights that are there are never overwritten. rein sft --full trains them.",
        .options = {{"seed", "N", "of the weights (default 1)"}},
        .max_words = 1,
        .example = "rein init my-model --seed 1",
        .run = rein_run_init,
    },
    {
        .name = "report",
        .usage = "RUN... [--output FILE]",
        .summary = "one HTML file about a run, or about several side by side",
        .description =
            "Writes a page that needs nothing but a browser: what became of the policy, its curves, what it wrote on the way with "
            "each token coloured by its advantage, the same held-out prompts before and after, and the settings. Several runs are "
            "laid over each other and compared. What a run does not have is not in the page; a run that is still being trained "
            "can be reported on too. The path of the file is printed.",
        .options = {{"output", "FILE", "where to write it (default: report.html in the first RUN)"}},
        .max_words = REIN_MAX_WORDS,
        .example = "rein report my-run",
        .run = rein_run_report,
    },
    {
        .name = "task",
        .usage = "[NAME|FILE|COMMAND] [OPTION...]",
        .summary = "what a task asks, and demonstrations of the answers",
        .description =
            "Shows examples of a task: a built-in one by its name, a file of JSON lines (NAME.jsonl), or a program that is asked "
            "for them (a command with a blank or a slash in it). Without one it lists the built-in tasks.\n"
            "Examples have numbers, from 0, and are the same every time. What is held out is never asked in training. An example "
            "of a file is {\"prompt\": TEXT} or {\"messages\": [...]}, with \"answer\", \"budget\" and whatever else.",
        .options = {{"count", "N", "how many examples (default 5)"},
                    {"from", "N", "number of the first one (default 0)"},
                    {"split", "NAME", "train (the default) or held-out"},
                    {"seed", "N", "of a built-in task or a program (default 1): another seed, other examples"},
                    {"held-out", "P", "of a file: about this share of its examples is held out (default: none)"},
                    {"timeout", "S", "of a program: seconds it may take for an example (default 30)"},
                    {"demonstrations", NULL, "of a built-in task: also a response as models are first taught it"},
                    {"json", NULL,
                     "print one JSON object a line, as a file has it; with --demonstrations prompt and completion, as rein sft "
                     "reads them"}},
        .max_words = 1,
        .word = rein_task_word,
        .example = "rein task sums --demonstrations",
        .run = rein_run_task,
    },
    {
        .name = "bench",
        .usage = "[ROW...] [--rounds N] [--peer NAME=COMMAND]... [--json]",
        .summary = "how fast it is here, beside the machine's limits and others",
        .description =
            "Measures the rows of the performance table, each in a process of its own, beside what the machine gives in the same "
            "moment: the share is how much of that limit is reached, or of the value that is wanted. ROW is the name of a row or "
            "its beginning (train, \"decode smollm\"); without one all are measured, which takes some minutes.\n"
            "A peer is a program that can do the same work. It is run as COMMAND ROW, directly beside the row, and prints "
            "{\"value\": NUMBER} in the row's unit, with \"memory\": MB where it knows that, or {} for a row that it does not do. "
            "The figure behind its name says how many times as good rein is.\n"
            "Models of random weights are written to a temporary directory ($TMPDIR, or /tmp), which needs about a gigabyte.",
        .options = {{"list", NULL, "print the names of the rows, and what is measured"},
                    {"rounds", "N", "the best of N rounds counts (default: some seconds of them)"},
                    {"peer", "NAME=COMMAND", "another program that does the same; may be repeated"},
                    {"json", NULL, "print a JSON array: name, value, unit, limit, share_of_limit and peers of each row"}},
        .repeats = "peer",
        .max_words = REIN_MAX_WORDS,
        .word = rein_bench_word,
        .example = "rein bench fma read triad start",
        .run = rein_run_bench,
    },
    {
        .name = "completion",
        .usage = "bash|zsh|fish",
        .summary = "completion of commands, options and names for your shell",
        .description = "Prints a script for the shell to read, for example from its start-up file.",
        .max_words = 1,
        .word = rein_shell_at,
        .example = "source <(rein completion bash)",
        .run = rein_run_completion,
    },
    {
        .name = "help",
        .usage = "[COMMAND] [--man]",
        .summary = "this help, that of a command, or the manual page",
        .description = "The same as rein --help or rein COMMAND --help. With --man it prints the manual page (roff).",
        .options = {{"man", NULL, "print the manual page"}},
        .max_words = 1,
        .word = command_word,
        .example = "rein help --man > rein.1",
        .run = rein_run_help,
    },
};

const rein_command *rein_command_at(size_t i) { return i < sizeof COMMANDS / sizeof *COMMANDS ? &COMMANDS[i] : NULL; }

const rein_command *rein_command_named(const char *name) {
    const rein_command *command;
    for (size_t i = 0; (command = rein_command_at(i)) && strcmp(command->name, name) != 0; i++) {
    }
    return command;
}

const char *rein_option_value(const rein_args *args, const char *name) {
    for (size_t i = 0; i < REIN_MAX_OPTIONS && args->command->options[i].name; i++) {
        if (!strcmp(args->command->options[i].name, name)) return args->values[i];
    }
    return NULL;
}

void rein_help(rein_text *out) {
    const rein_command *command;
    rein_text_format(out,
                     "rein %s: reinforcement learning that keeps the policy in hand:\n"
                     "token budgets, trust regions and KL to a reference.\n\n",
                     rein_version());
    rein_text_put(out, "Usage: rein COMMAND [OPTION...] [ARGUMENT...]\n\nCommands:\n");
    for (size_t i = 0; (command = rein_command_at(i)); i++) rein_text_format(out, "  %-12s%s\n", command->name, command->summary);
    rein_text_put(out, "\nOptions:\n  --help      show this help; after a command, the command's\n"
                       "  --version   print the version\n\n"
                       "Environment:\n"
                       "  REIN_KERNEL=ref   compute without vector instructions: the same result, slower\n"
                       "  NO_COLOR=1        no colours, also on a terminal\n\n"
                       "Data goes to standard output, everything else to standard error.\n"
                       "Exit status: 0 done, 1 failed, 2 wrong usage or input.\n\n"
                       "Start with:\n  rein demo\n");
}

static size_t option_columns(const rein_cli_option *option) {
    return 4 + strlen(option->name) + (option->value ? 1 + strlen(option->value) : 0);
}

/* Where the helps begin. */
static size_t help_column(const rein_command *command) {
    size_t column = 16;
    for (size_t i = 0; i < REIN_MAX_OPTIONS && command->options[i].name; i++) {
        if (option_columns(&command->options[i]) + 2 > column) column = option_columns(&command->options[i]) + 2;
    }
    return column;
}

void rein_help_command(rein_text *out, const rein_command *command) {
    const size_t column = help_column(command);
    rein_text_format(out, "Usage: rein %s %s\n\n", command->name, command->usage);
    rein_wrap(out, 0, WIDTH, command->description);
    rein_text_put(out, "\nOptions:\n");
    for (size_t i = 0; i < REIN_MAX_OPTIONS && command->options[i].name; i++) {
        const rein_cli_option *option = &command->options[i];
        rein_text_format(out, "  --%s%s%s", option->name, option->value ? " " : "", option->value ? option->value : "");
        rein_text_repeat(out, " ", column - option_columns(option));
        rein_wrap(out, column, WIDTH, option->help);
    }
    rein_text_format(out, "  %-*sshow this help\n", (int)column - 2, "--help");
    if (command->operations) operations_help(out);
    if (command->settings) rein_help_settings(out, command, WIDTH);
    rein_text_format(out, "\nExample:\n  %s\n", command->example);
}

int rein_run_help(const rein_args *args) {
    rein_text out = {0};
    int man = rein_option_value(args, "man") != NULL;
    const rein_command *command = args->n_words ? rein_command_named(args->words[0]) : NULL;
    if (args->n_words && man)
        return rein_say(REIN_WRONG, "help", "--man prints the whole manual: leave out \"%s\"", args->words[0]);
    if (args->n_words && !command)
        return rein_say(REIN_WRONG, "help", "unknown command \"%s\": rein help lists the commands", args->words[0]);
    if (man) rein_man(&out);
    else if (command) rein_help_command(&out, command);
    else rein_help(&out);
    return rein_print(&out);
}
