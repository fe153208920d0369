#!/bin/bash
# run_gguf.sh REIN: a model in GGUF does what the same model in a directory does, in every command: bit for bit.
# Ends with 'N passed, N failed'.
set -u
# shellcheck source-path=SCRIPTDIR source=cases.sh
. "$(dirname "$0")/cases.sh"
here=$(realpath "$(dirname "$0")")
sums=$(realpath "$here/../../models/sums")
cd "$work" || exit 1

# same TITLE FILE FILE
same() { if cmp -s "$2" "$3"; then pass; else fail "$1" "$2 and $3 differ"; fi; }

does "a model in GGUF" python3 "$here/gguf_files.py" "$sums" sums.gguf
cp sums.gguf unnamed

ask=(--prompt 'Q: 3 + 4' --max-tokens 12 --json)
does "generate: the directory" rein generate --model "$sums" "${ask[@]}" && cp out wanted
does "generate: GGUF" rein generate --model sums.gguf "${ask[@]}"
same "generate: the same" out wanted
does "generate: GGUF under another name" rein generate --model unnamed "${ask[@]}"
same "generate: the same under another name" out wanted
does "score: the directory" rein score --model "$sums" --text 'Q: 3 + 4' && cp out wanted
does "score: GGUF" rein score --model sums.gguf --text 'Q: 3 + 4'
same "score: the same" out wanted

run=(--task sums --preset rloo --prompts 2 --samples 4 --max-tokens 8 --eval-prompts 2 --learning-rate 1e-2)
does "run: the directory" rein run wanted_run --model "$sums" "${run[@]}" --steps 2
does "run: GGUF" rein run one --model sums.gguf "${run[@]}" --steps 1
has "run: the file has a fingerprint" one/checkpoints/0001/state.json '"model/sums.gguf"'
does "run: GGUF, resumed" rein run one --steps 2
same "run: the same adapter" one/checkpoints/0002/adapter_model.safetensors wanted_run/checkpoints/0002/adapter_model.safetensors
has "run: the adapter names its base" one/checkpoints/0002/adapter_config.json 'sums\.gguf"'
does "run: all weights" rein run whole --model sums.gguf "${run[@]}" --steps 1 --full
does "run: all weights, the directory" rein run wanted_whole --model "$sums" "${run[@]}" --steps 1 --full
same "run: the same weights" whole/checkpoints/0001/model.safetensors wanted_whole/checkpoints/0001/model.safetensors
does "generate: all weights" rein generate --model whole "${ask[@]}" && cp out wanted
does "generate: all weights, the directory" rein generate --model wanted_whole "${ask[@]}"
same "generate: all weights, the same" out wanted

does "export" rein export one --to merged
does "export: the directory" rein export wanted_run --to wanted_merged
same "export: the same weights" merged/model.safetensors wanted_merged/model.safetensors
does "export: the model with its tokenizer" rein generate --model merged "${ask[@]}"
does "export: GGUF without an adapter" rein export sums.gguf --to plain
same "export: the weights of the directory" plain/model.safetensors "$sums/model.safetensors"

does "inspect" rein inspect sums.gguf
has "inspect: the family" out '^family            llama$'
has "inspect: the types" out '^tensors           F32   '
has "inspect: the metadata" out '^metadata          llama.block_count 3$'
does "inspect: JSON" rein inspect sums.gguf --json
has "inspect: JSON" out '"gguf": \{"files": 1, "types": \[\{"type": "F32", "tensors": '

head -c 5000 sums.gguf >cut.gguf
refused "a file that was cut short" '^rein generate: .*cut\.gguf: .*cut short' rein generate --model cut.gguf --prompt Q
printf 'GGUF\x01\0\0\0' >old.gguf
refused "an old version" '^rein generate: .*old\.gguf: this is version 1 of GGUF: 2 and 3 are supported' rein generate --model old.gguf --prompt Q
echo text >text.gguf
refused "not a GGUF file" '^rein generate: .*text\.gguf: the file does not begin with the letters GGUF' rein generate --model text.gguf --prompt Q
echo one more >>sums.gguf
refused "a model that changed" '^rein run: .*sums\.gguf' rein run one --steps 3

finish
