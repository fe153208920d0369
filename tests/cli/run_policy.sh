#!/bin/bash
# run_policy.sh REIN: policies by name (a model, RUN, RUN@STEP) in generate, score and eval; chat, export and bundle.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
sums=$(realpath "$(dirname "$0")/../../models/sums")
cd "$work" || exit 1

# same TITLE FILE FILE
same() { if cmp -s "$2" "$3"; then pass; else fail "$1" "$2 and $3 differ"; fi; }

run=(--task sums --preset rloo --prompts 4 --samples 4 --max-tokens 16 --eval-prompts 4 --learning-rate 1e-2)
does "a run" rein run one --model "$sums" "${run[@]}" --steps 2 --temperature 0.7
does "a run of all weights" rein run whole --model "$sums" "${run[@]}" --steps 1 --full

# ----------------------------------------------------------------------------------------------------------------- names

plain=(--prompt 'Q: 3 + 4' --max-tokens 12)
ask=("${plain[@]}" --json)
does "generate: a step" rein generate --model one@1 "${ask[@]}" && cp out step
does "generate: its adapter" rein generate --model "$sums" --adapter one/checkpoints/0001 --temperature 0.7 "${ask[@]}"
same "generate: a run is its model, adapter and temperature" step out
does "generate: the newest" rein generate --model one "${ask[@]}" && cp out newest
does "generate: the last step" rein generate --model one@2 "${ask[@]}"
same "generate: a run is its newest step" newest out
if cmp -s step newest; then fail "generate: steps differ"; else pass; fi
does "score: a step" rein score --model one@1 --text 'Q: 3 + 4' && cp out step
does "score: its adapter" rein score --model "$sums" --adapter one/checkpoints/0001 --temperature 0.7 --text 'Q: 3 + 4'
same "score: a run is its model, adapter and temperature" step out
does "eval: a run as --model" rein eval --model one@1 --json && cp out step
does "eval: a run as a word" rein eval one@1 --json
same "eval: the same" step out
does "generate: all weights" rein generate --model whole "${ask[@]}"

neither='is neither a model \(a directory with config.json and safetensors, or a GGUF file; nothing is downloaded\) nor a run \(RUN or RUN@STEP\)$'
refused "no such policy" "^rein generate: \"nothing\" $neither" rein generate --model nothing "${plain[@]}"
refused "no such step" '^rein generate: one has no step 7: it has 0, 1, 2$' rein generate --model one@7 "${plain[@]}"
refused "a model has no steps" "^rein score: \".*sums@3\" $neither" rein score --model "$sums@3" --text a
refused "two adapters" "^rein generate: --adapter and a run are both given" rein generate --model one --adapter one/checkpoints/0001 "${plain[@]}"
mkdir one@1 # a directory of that name is meant, not the step
refused "a directory with an @" '^rein generate: one@1/config.json' rein generate --model one@1 "${plain[@]}"
rmdir one@1
cp -r one damaged && printf x >>damaged/checkpoints/0002/adapter_model.safetensors
does "generate: a damaged step is passed over" rein generate --model damaged "${ask[@]}"
has "generate: and that is said" err '^rein generate: note: .*0002'

cp -r "$sums" moved
does "a run of a copied model" rein run changed "${run[@]}" --model moved --steps 1
printf '{"do_sample": true}' >moved/generation_config.json
does "generate: a model that changed" rein generate --model changed "${ask[@]}"
has "generate: that is said" err '^rein generate: note: model is not what the run was made with: .*generation_config.json was missing, and is 19 bytes with hash [0-9a-f]{16}$'

# ---------------------------------------------------------------------------------------------------------------- export

does "export" rein export one --to merged
has "export: the path" "$work/out" '^merged$'
has "export: who loads it" "$work/err" 'from_pretrained\("merged"\)'
for file in config.json model.safetensors tokenizer.json; do if [ -f "merged/$file" ]; then pass; else fail "export: $file"; fi; done
does "export: the model" rein generate --model merged --temperature 0.7 "${ask[@]}"
refused "export: a model is there" '^rein export: .*merged' rein export one --to merged
refused "export: nothing" '^rein export: a policy is needed' rein export --to there
refused "export: nowhere" '^rein export: a directory or a file is needed: --to DIR or --to FILE.gguf$' rein export one
absent "export: nothing is written" there

# ---------------------------------------------------------------------------------------------------------------- bundle

says "bundle" '^one.tar$' rein bundle one/
says "bundle: again" '^second.tar$' rein bundle one --output second.tar
same "bundle: the same bytes" one.tar second.tar
says "bundle: a step" '^one-1.tar$' rein bundle one@1
mkdir open && tar -xf one.tar -C open
same "bundle: settings" one/config.yaml open/one/config.yaml
same "bundle: history" one/history.jsonl open/one/history.jsonl
same "bundle: report" one/report.html open/one/report.html
same "bundle: adapter" one/checkpoints/0002/adapter_model.safetensors open/one/adapter/adapter_model.safetensors
if tar -tf one.tar | grep -q optimizer; then fail "bundle: no optimizer"; else pass; fi
does "bundle: the adapter works" rein generate --model "$sums" --adapter open/one/adapter --temperature 0.7 "${ask[@]}"
same "bundle: and is that of the run" newest out
says "bundle: all weights" '^whole.tar$' rein bundle whole
tar -xf whole.tar -C open
does "bundle: the model works" rein generate --model open/whole/model "${ask[@]}"
refused "bundle: not a run" "^rein bundle: .* is not a run: it has no config.yaml$" rein bundle "$sums"
refused "bundle: nothing" '^rein bundle: a run is needed: rein bundle RUN$' rein bundle

# ------------------------------------------------------------------------------------------------------------------ chat

talk() { # talk LINES OPTION…: what is answered to the lines
    local lines=$1
    shift
    printf "$lines" | rein chat "$@" --chat-format raw --max-tokens 8 --temperature 0 >out 2>err
}
one_line() { if [ "$(wc -l <"$2")" -eq "$3" ]; then pass; else fail "$1" "$(cat "$2")"; fi; }
if talk 'Q: 3 + 4\n' "$sums"; then pass; else fail "chat" "$(cat err)"; fi
one_line "chat: one answer" out 1
cp out first
does "chat: as generate says" rein generate --model "$sums" --prompt 'Q: 3 + 4' --chat --chat-format raw --max-tokens 8 --greedy
same "chat: the first answer is that of generate" first out
talk 'Q: 3 + 4\nQ: 5 + 5\n' "$sums"
one_line "chat: two answers" out 2
head -1 out >again
same "chat: the first stays" first again
talk 'Q: 3 + 4\n/reset\nQ: 3 + 4\n' "$sums"
sed -n 2p out >again
same "chat: reset" first again
talk 'Q: 3 + 4\n/base\n' one
one_line "chat: the base answers too" out 2
sed -n 2p out >again
same "chat: the base is the model" first again
talk '/base\nQ: 1 + 1\n/exit\nQ: 2 + 2\n' one
one_line "chat: exit" out 1
has "chat: nothing to answer" err '^rein chat: there is no message to answer yet$'
talk '/what\n' "$sums"
has "chat: help" err '/reset: a new conversation; /exit: the end$'
refused "chat: no policy" '^rein chat: a policy is needed' rein chat
refused "chat: no template" '^rein chat: the model has no chat template: --chat-format NAME .*; rein generate takes plain text$' rein chat "$sums" <<<'hello'
refused "chat: an option without effect" '^rein chat: --top-p has no effect' rein chat "$sums" --temperature 0 --top-p 0.5

finish
