/* avx512.c - the kernels of AVX-512 F, VL, DQ and BW. Kernels that gain nothing from it are those of AVX2. */
#include "isa.h"
#include "kernel/gemm_block.h"
#include "kernel/rows.h"
#include "objective/kernels.h"
#include "train/adamw_pass.h"

static int available(void) {
    return rein_kernels_avx2.available() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}

const rein_kernels rein_kernels_avx512 = {
    .available = available,
    .gemm = &rein_gemm_kernels_avx512_f32,
    .rows = &rein_row_kernels_avx512_f32,
    .decode = rein_decode_avx512_f32,
    .exp_f32 = rein_exp_avx2_f32,
    .log_f32 = rein_log_avx2_f32,
    .exp_f64 = rein_exp_avx2_f64,
    .log_f64 = rein_log_avx2_f64,
    .objective_f32 = &(const rein_objective_kernels){.token_loss = rein_token_loss_avx512_f32, .gpo = rein_gpo_pass_avx2_f32},
    .objective_f64 = &(const rein_objective_kernels){.token_loss = rein_token_loss_avx512_f64, .gpo = rein_gpo_pass_avx2_f64},
    .adamw = &rein_adamw_kernels_avx2_f32,
};
