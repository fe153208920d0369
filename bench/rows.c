/* rows.c - the rows of `rein bench`. A peer gets the name of a row as its argument. */
#include <string.h>

#include "bench/bench.h"

#define SMALL .shape = &bench_small
#define SMOLLM .shape = &bench_smollm
#define HEAD .shape = &bench_head
#define GEMMA .shape = &bench_gemma
#define EXPERTS .shape = &bench_experts
#define WINDOWS .shape = &bench_windows

static const bench_row ROWS[] = {
    {"fma", "GFLOP/s", "fused multiply-adds, 12 chains of vectors on each core", bench_machine, .rounds = 20, .machine = bench_fma},
    {"read", "GB/s", "reading 256 MB", bench_machine, .rounds = 10, .machine = bench_read},
    {"triad", "GB/s", "a = b + s·c, stores past the caches", bench_machine, .rounds = 10, .machine = bench_triad},

    {"policy-loss f32", "GB/s", "GRPO with k3, 16 M tokens; limit: triad", bench_policy_loss, .rounds = 15},
    {"policy-loss f32 mask", "GB/s", "the same with a mask", bench_policy_loss, .rounds = 15, .mask = 1},
    {"policy-loss f64 mask", "GB/s", "the same in double", bench_policy_loss, .rounds = 15, .mask = 1, .f64 = 1},
    {"budget-loss f32", "GB/s", "100000 prompts of 16; limit: triad", bench_budget_loss, .rounds = 15},
    {"budget-loss f32 gradient", "GB/s", "the same with its gradient", bench_budget_loss, .rounds = 15, .gradient = 1},
    {"budget-loss f64", "GB/s", "in double", bench_budget_loss, .rounds = 15, .f64 = 1},
    {"budget-loss f64 gradient", "GB/s", "in double, with its gradient", bench_budget_loss, .rounds = 15, .gradient = 1, .f64 = 1},
    {"rlhf-update f32", "GB/s", "64 gradients of 4 M weights; limit: read", bench_rlhf_update, .rounds = 10},
    {"rlhf-update f64", "GB/s", "the same in double", bench_rlhf_update, .rounds = 10, .f64 = 1},
    {"start", "ms", "rein objective budget-loss, cold; goal: 5", bench_start, .rounds = 5, .limit = 5, .unbound = 1},

    {"train small full", "tok/s", "AdamW step, 6 layers × 384; limit: fma", bench_train, .rounds = 8, SMALL},
    {"train small lora", "tok/s", "the same with LoRA r 8 on bf16", bench_train, .rounds = 8, SMALL, .lora = 1},
    {"train smollm full", "tok/s", "AdamW step, SmolLM2-135M's shape; limit: fma", bench_train, .rounds = 3, SMOLLM},
    {"train smollm lora", "tok/s", "the same with LoRA r 8 on bf16", bench_train, .rounds = 3, SMOLLM, .lora = 1},
    {"train smollm q4_0 lora", "tok/s", "the same with LoRA r 8 on Q4_0", bench_train, .rounds = 3, SMOLLM, .lora = 1,
     .quantize = "q4_0"},
    {"train smollm q8_0 lora", "tok/s", "the same with LoRA r 8 on Q8_0", bench_train, .rounds = 3, SMOLLM, .lora = 1,
     .quantize = "q8_0"},
    {"train gemma full", "tok/s", "AdamW step, Gemma 3 270M's shape; limit: fma", bench_train, .rounds = 3, GEMMA},
    {"train gemma lora", "tok/s", "the same with LoRA r 8 on bf16", bench_train, .rounds = 3, GEMMA, .lora = 1},
    {"train experts full", "tok/s", "AdamW step, 8 of 64 experts; limit: fma", bench_train, .rounds = 3, EXPERTS},
    {"memory train smollm full", "MB", "peak of that row; goal: 3500", .memory_of = "train smollm full", .limit = 3500},
    {"memory train smollm lora", "MB", "with LoRA; goal: 1200", .memory_of = "train smollm lora", .limit = 1200},
    {"head frozen", "tok/s", "forward and backward, 896 to 151936; limit: fma", bench_head_row, .rounds = 2, HEAD, .lora = 1},
    {"head trained", "tok/s", "the same with the gradient of the weights", bench_head_row, .rounds = 2, HEAD},

    {"decode smollm 1", "tok/s", "bf16; limit: read or fma", bench_decode, .rounds = 6, SMOLLM, .batch = 1},
    {"decode smollm 16", "tok/s", "16 responses at a time", bench_decode, .rounds = 4, SMOLLM, .batch = 16},
    {"decode smollm 64", "tok/s", "64 responses at a time", bench_decode, .rounds = 3, SMOLLM, .batch = 64},
    {"decode smollm q8_0 1", "tok/s", "matrices in Q8_0", bench_decode, .rounds = 6, SMOLLM, .batch = 1, .quantize = "q8_0"},
    {"decode smollm q8_0 16", "tok/s", "16 responses at a time", bench_decode, .rounds = 4, SMOLLM, .batch = 16,
     .quantize = "q8_0"},
    {"decode smollm q8_0 64", "tok/s", "64 responses at a time", bench_decode, .rounds = 3, SMOLLM, .batch = 64,
     .quantize = "q8_0"},
    {"decode smollm q4_0 1", "tok/s", "matrices in Q4_0", bench_decode, .rounds = 6, SMOLLM, .batch = 1, .quantize = "q4_0"},
    {"decode smollm q4_0 16", "tok/s", "16 responses at a time", bench_decode, .rounds = 4, SMOLLM, .batch = 16,
     .quantize = "q4_0"},
    {"decode smollm q4_0 64", "tok/s", "64 responses at a time", bench_decode, .rounds = 3, SMOLLM, .batch = 64,
     .quantize = "q4_0"},
    {"decode smollm f32 1", "tok/s", "f32 weights", bench_decode, .rounds = 6, SMOLLM, .batch = 1, .f32 = 1},
    {"decode gemma 1", "tok/s", "bf16, Gemma 3 270M's shape", bench_decode, .rounds = 6, GEMMA, .batch = 1},
    {"decode gemma 64", "tok/s", "64 responses at a time", bench_decode, .rounds = 3, GEMMA, .batch = 64},
    {"prefill smollm", "tok/s", "a prompt of 512 tokens, bf16; limit: fma", bench_prefill, .rounds = 3, SMOLLM},
    {"prefill smollm q8_0", "tok/s", "the same in Q8_0", bench_prefill, .rounds = 3, SMOLLM, .quantize = "q8_0"},
    {"prefill smollm q4_0", "tok/s", "the same in Q4_0", bench_prefill, .rounds = 3, SMOLLM, .quantize = "q4_0"},

    {"rl step sums", "s", "32 prompts × 8 responses: sample, reward, train", bench_rl_sums, .rounds = 5},
    {"rl step smollm", "s", "the same, prompts of 32, responses of 16 tokens", bench_rl_smollm, .rounds = 2, SMOLLM},
    {"dpo step smollm", "s", "8 pairs, prompts of 64, answers of 32, LoRA r 8", bench_dpo, .rounds = 3, SMOLLM},
    {"reward step smollm", "s", "the same pairs, a reward model with LoRA r 8", bench_reward, .rounds = 3, SMOLLM},
    {"share exact kl", "%", "an RL step with the exact KL to k3; goal: 135", bench_exact_kl, .rounds = 3, SMOLLM, .limit = 135},
    {"share reference", "%", "of a step outside its passes; goal: 25", bench_reference, .rounds = 4, SMALL, .lora = 1, .limit = 25},
    {"share reference full", "%", "the same where all weights train", bench_reference, .rounds = 4, SMALL, .limit = 25},
    {"share window", "%", "time a token at 4,096 to that at 512; goal: 130", bench_window, .rounds = 3, WINDOWS, .limit = 130},
    {"share sharing", "×", "speedup when 8 responses share a prompt", bench_sharing, .rounds = 4, SMALL},
};

const bench_row *bench_row_at(size_t i) { return i < sizeof ROWS / sizeof *ROWS ? &ROWS[i] : NULL; }

_Static_assert(sizeof ROWS / sizeof *ROWS <= BENCH_ROWS, "BENCH_ROWS is too small");

int bench_less_is_better(const bench_row *row) {
    static const char *const units[] = {"s", "ms", "MB", "%"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(row->unit, units[i])) return 1;
    return 0;
}
