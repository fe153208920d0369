/* ref.c - the kernels of plain C, for every machine. */
#include "isa.h"
#include "kernel/gemm_block.h"
#include "kernel/rows.h"
#include "objective/kernels.h"
#include "train/adamw_pass.h"

const rein_kernels rein_kernels_ref = {
    .gemm = &rein_gemm_kernels_ref_f32,
    .rows = &rein_row_kernels_ref_f32,
    .decode = rein_decode_ref_f32,
    .exp_f32 = rein_exp_ref_f32,
    .log_f32 = rein_log_ref_f32,
    .exp_f64 = rein_exp_ref_f64,
    .log_f64 = rein_log_ref_f64,
    .objective_f32 = &(const rein_objective_kernels){.token_loss = rein_token_loss_ref_f32, .gpo = rein_gpo_pass_ref_f32},
    .objective_f64 = &(const rein_objective_kernels){.token_loss = rein_token_loss_ref_f64, .gpo = rein_gpo_pass_ref_f64},
    .adamw = &rein_adamw_kernels_ref_f32,
};
