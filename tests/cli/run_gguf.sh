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

does "export: GGUF from a directory" rein export "$sums" --to ours.gguf --type f32
has "export: the path" out '^ours\.gguf$'
has "export: the error" err 'error against f32: 0 of the weights'
has "export: llama.cpp" err 'llama-cli -m ours\.gguf$'
has "export: Ollama" err 'ollama create ours -f Modelfile'
does "generate: our GGUF" rein generate --model ours.gguf "${ask[@]}"
rein generate --model "$sums" "${ask[@]}" >wanted 2>/dev/null
same "generate: our GGUF, the same" out wanted
does "export: a run of a GGUF model" rein export one --to one.gguf --type f32
does "generate: the exported run" rein generate --model one.gguf "${ask[@]}" && cp out merged_answer
does "generate: the merged directory" rein generate --model merged "${ask[@]}"
same "generate: the exported run, the same" out merged_answer
does "export: blocks" rein export one@1 --to blocks.gguf --type q8_0
has "export: the error of blocks" err 'error against f32: 0\.00[45]'
does "inspect: blocks" rein inspect blocks.gguf
has "inspect: the types of blocks" out 'Q8_0'
does "run: on blocks" rein run on_blocks --model blocks.gguf "${run[@]}" --steps 1
does "export: an adapter" rein export one --to adapter.gguf --adapter-only
has "export: the adapter in llama.cpp" err 'llama-cli -m MODEL.gguf --lora adapter\.gguf$'
does "export: an adapter of PEFT" rein export one --to adapter --adapter-only
same "export: the adapter of the run" adapter/adapter_model.safetensors one/checkpoints/0002/adapter_model.safetensors
has "export: vLLM" err 'vllm serve .* --enable-lora'
refused "export: the file exists" '^rein export: ours\.gguf already exists' rein export "$sums" --to ours.gguf
refused "export: an unknown type" '^rein export: --type is "q3": f32, f16, bf16, q8_0 and q4_0 are known' rein export "$sums" --to x.gguf --type q3
refused "export: a type of a directory" '^rein export: --type is for GGUF files' rein export "$sums" --to x --type f16
refused "export: a type of an adapter" '^rein export: --type and --adapter-only' rein export one --to x.gguf --type f16 --adapter-only
refused "export: no adapter" '^rein export: --adapter-only' rein export "$sums" --to x.gguf --adapter-only
if [ -e x.gguf ] || [ -e x ]; then fail "export: nothing is written" "x.gguf or x is there"; else pass; fi

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
