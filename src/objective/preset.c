/* preset.c - the published methods, one row of options each. "name=?" marks a constant that was not published: the user must give it.
 * A new method is a new row. */
#include <math.h>
#include <string.h>

#include "options.h"

static const struct preset {
    rein_preset_info info;
    const char *options;
} presets[] = {
    {{"reinforce", "REINFORCE", "Williams (1992), Simple statistical gradient-following algorithms",
      "loss = -mean_i Σ_t A_i lp_t,  A_i = r_i", "the plain policy gradient: a baseline for everything else",
      "Every other preset is a way of lowering its variance or of keeping its steps small."},
     "surrogate=reinforce aggregation=seq-mean-token-sum"},
    {{"rloo", "RLOO: REINFORCE leave-one-out", "arXiv 2402.14740 (Ahmadian et al. 2024), sec. 3 and app. C",
      "loss = -mean_i Σ_t A_i lp_t,  A_i = K/(K-1)·(r'_i - mean r'),  r'_i = r_i - β Σ_t (lp_t - ref_t)",
      "on-policy RL from a handful of samples a prompt, without clipping",
      "β is 0.03 for TL;DR summarisation and 0.10 for HH in the paper; 0.03 here."},
     "advantage=leave-one-out surrogate=reinforce kl_reward_coef=0.03 aggregation=seq-mean-token-sum"},
    {{"reinforce++", "REINFORCE++", "arXiv 2501.03262 (Hu 2025), eq. 8-10, sec. 4.2.3",
      "loss = -mean_i mean_t min(ρA, clip(ρ,1-ε,1+ε)A),  A_t = whiten over all trained tokens of r_i - β Σ_{s>=t}(lp_s - ref_s)",
      "critic-free PPO whose advantages are normalised over the whole batch", "ε = 0.2, β = 0.001."},
     "advantage=reinforce++ surrogate=clip epsilon=0.2 kl_reward_coef=0.001 aggregation=seq-mean-token-mean"},
    {{"ppo", "PPO", "arXiv 1707.06347 (Schulman et al. 2017), eq. 7 and 11; LLM constants as InstructGPT, arXiv 2203.02155",
      "loss = -mean_t min(ρA, clip(ρ,1-ε,1+ε)A),  A_t = Σ_l (γλ)^l δ_{t+l}", "the classic, with a critic's values",
      "Needs values: --critic trains a critic that gives them. γ = 1 and λ = 0.95 as used for language models; the paper's own "
      "tables have γ = 0.99."},
     "advantage=gae gae_gamma=1 gae_lambda=0.95 surrogate=clip epsilon=0.2 aggregation=token-mean"},
    {{"grpo", "GRPO", "DeepSeekMath, arXiv 2402.03300 (Shao et al. 2024), eq. 3-4, sec. 4.2",
      "loss = mean_i mean_t [-min(ρA, clip(ρ,1-ε,1+ε)A) + β k3_t],  A_i = (r_i - mean)/std",
      "the standard for verifiable rewards: the group is the baseline, no critic",
      "β = 0.04 is published; ε is not, 0.2 is everybody's."},
     "advantage=group-std surrogate=clip epsilon=0.2 kl_loss_coef=0.04 kl_estimator=k3 aggregation=seq-mean-token-mean"},
    {{"dr-grpo", "Dr. GRPO", "arXiv 2503.20783 (Liu et al. 2025), sec. 3.2, table 6",
      "loss = -1/(N·Lmax) Σ_i Σ_t min(ρA, clip(ρ,1-ε,1+ε)A),  A_i = r_i - mean",
      "GRPO without its two biases: towards long wrong answers, and towards easy or hard prompts",
      "max_response_length is the generation limit of the run (3000 in the paper)."},
     "advantage=group-mean surrogate=clip epsilon=0.2 aggregation=dr-grpo max_response_length=?"},
    {{"dapo", "DAPO", "arXiv 2503.14476 (Yu et al. 2025), eq. 8-13",
      "loss = -1/Σ|o| Σ_i Σ_t min(ρA, clip(ρ,1-ε,1+ε_h)A),  A_i = (r'_i - mean)/std,  r' = r + overlong(L)",
      "long chains of thought: room upwards for rare tokens, every token counts the same, a soft length limit",
      "ε = 0.2, ε_h = 0.28; the length penalty runs from 16384 to 20480 tokens. Dynamic sampling is a setting of the run."},
     "shape=overlong overlong_max=20480 overlong_cushion=4096 advantage=group-std surrogate=clip epsilon=0.2 epsilon_high=0.28 "
     "aggregation=token-mean"},
    {{"bnpo", "BNPO as TRL has it", "TRL GRPOTrainer, loss_type bnpo",
      "loss = -1/Σ|o| Σ_i Σ_t min(ρA, clip(ρ,1-ε,1+ε)A),  A_i = (r_i - mean)/std", "GRPO normalised by the tokens of the batch",
      "TRL normalises each micro-batch by itself; here the normaliser is the step's. Not the Beta normalisation of arXiv "
      "2506.02864."},
     "advantage=group-std surrogate=clip epsilon=0.2 aggregation=token-mean"},
    {{"gspo", "GSPO", "arXiv 2507.18071 (Zheng et al. 2025), eq. 5 and 7, sec. 5.1",
      "loss = -mean_i min(s_i A_i, clip(s_i,1-ε,1+ε_h)A_i),  s_i = exp(mean_t d_t),  A_i = (r_i - mean)/std",
      "mixture-of-experts models and long responses, where token ratios are noise",
      "ε = 3e-4, ε_h = 4e-4. With ratio sequence-token it is GSPO-token (eq. 13-14), for advantages that differ by token."},
     "advantage=group-std ratio=sequence surrogate=clip epsilon=0.0003 epsilon_high=0.0004 aggregation=seq-mean-token-mean"},
    {{"gmpo", "GMPO", "arXiv 2507.20673 (Zhao et al. 2025)",
      "loss = -mean_i A_i exp(mean_t d̃_t),  d̃ = min(d, ε) for A > 0, max(d, -ε) for A < 0,  A_i = (r_i - mean)/std",
      "a geometric mean of token ratios: one outlier cannot carry a sequence", "ε = 0.4, in log space."},
     "advantage=group-std surrogate=gmpo epsilon=0.4 aggregation=seq-mean-token-mean"},
    {{"cispo", "CISPO", "MiniMax-M1, arXiv 2506.13585, eq. 4-5; constants as ART and ScaleRL (arXiv 2510.13786)",
      "loss = -1/Σ|o| Σ_i Σ_t stop(clip(ρ,1-ε,1+ε_h)) A_i lp_t,  A_i = (r_i - mean)/std",
      "clips the weight instead of the token: no token ever loses its gradient",
      "The report sets no lower bound and publishes no ε_h; ε = 1, ε_h = 4 clip to [0, 5]. TRL's epsilon_high is the bound "
      "itself."},
     "advantage=group-std surrogate=cispo epsilon=1 epsilon_high=4 aggregation=token-mean"},
    {{"sapo", "SAPO", "arXiv 2511.20347 (Qwen 2025), eq. 5-9",
      "loss = -mean_i mean_t (4/τ)σ(τ(ρ-1))A,  τ = 1 for A > 0, 1.05 otherwise,  A_i = (r_i - mean)/std",
      "a trust region without a kink", ""},
     "advantage=group-std surrogate=sapo sapo_tau_positive=1 sapo_tau_negative=1.05 aggregation=seq-mean-token-mean"},
    {{"k1.5", "Kimi k1.5", "arXiv 2501.12599 (Kimi Team 2025), sec. 2.3.2-2.3.3",
      "loss = mean_i (A_i - τ Σ_t d_t)²,  A_i = r'_i - mean,  r' = r + weight·length reward",
      "mirror descent in one line: regress the log-ratio on the advantage",
      "τ and the length reward's weight are not published. The report's printed gradient is this one divided by 2τ: scale the "
      "learning rate."},
     "shape=k1.5-length length_weight=? advantage=group-mean surrogate=squared tau=? aggregation=seq-mean-token-mean"},
    {{"k2", "Kimi K2", "arXiv 2507.20534 (Kimi Team 2025), sec. 3.2.3",
      "loss = mean_i (A_i - τ Σ_t d_t)²,  A_i = r'_i - mean,  r' = r - λ max(0, L - B)", "answers that stay within a token budget",
      "τ, the penalty and the budgets are not published. The report truncates and assigns a penalty (shape truncate)."},
     "shape=budget token_budget=? budget_penalty_coef=? advantage=group-mean surrogate=squared tau=? "
     "aggregation=seq-mean-token-mean"},
    {{"deepseek-v3.2", "DeepSeek-V3.2", "arXiv 2512.02556 (DeepSeek-AI 2025), eq. 7-9",
      "loss = mean_i mean_t [-M·min(ρA, clip(ρ,1-ε,1+ε)A) + β ρ k3_t],  A_i = r_i - mean",
      "an unbiased KL, and sequences the policy has left behind do not pull it down",
      "β is not published (it varies by domain, and may be 0), nor δ: off_policy_mask_delta switches the mask M on."},
     "advantage=group-mean surrogate=clip epsilon=0.2 kl_loss_coef=? kl_estimator=is-k3 kl_direction=ref_over_current "
     "aggregation=seq-mean-token-mean"},
    {{"art", "ART", "OpenPipe ART, src/art/loss.py; pull request 562 for the KL penalty",
      "loss = -mean_i mean_t stop(clip(ρ,1-ε,1+ε_h)) A_t lp_t,  A_i = (r_i - mean)/std,  A_t = A_i + c(avg - d^ref_t)",
      "agents trained on trajectories, with KL-penalised advantages",
      "ART divides by the population std and then scales the mean |A| to 1; here the std is unbiased and A is not rescaled. c = 0 "
      "by default. max_negative_advantage_importance_sampling_weight bounds ρ where A < 0 (in ART, where A > 0 too); off by "
      "default."},
     "advantage=group-std surrogate=cispo epsilon=1 epsilon_high=4 aggregation=seq-mean-token-mean"},
    {{"online-dpo", "online DPO", "arXiv 2402.04792 (Guo et al. 2024), sec. 3; the loss: arXiv 2305.18290",
      "loss = mean over pairs of -log σ(h),  h = β((s_w - ref_w) - (s_l - ref_l)),  w: the best response to a prompt, l: the worst",
      "preferences over the policy's own responses: any reward that can rank them, without an advantage",
      "A prompt whose responses all have the same reward is skipped. preference_loss chooses another loss: rein explain simpo. "
      "β is 0.1, for simpo 2. Of training alone: a loss over pairs is rein objective preference-loss."},
     "preference_loss=dpo"},
};

enum { COUNT = sizeof presets / sizeof *presets };

/* The options before a preset: no constant is given. */
static rein_options nothing_given(void) {
    static const char *const zero[] = {"advantage_balance", "kimi_k2_tau",     "kl_reward_coef",
                                       "kl_reward_exact",   "kl_penalty_coef", "kl_loss_coef",
                                       "entropy_coef",      "teacher_coef",    NULL};
    rein_options o = {.kl_estimator = REIN_K3};
    const rein_option_info *info;
    for (size_t i = 0; (info = rein_option_at(i)); i++) {
        int is_zero = info->choices != NULL;
        for (size_t k = 0; zero[k]; k++) is_zero |= strcmp(info->name, zero[k]) == 0;
        if (!is_zero) rein_options_unset(&o, info->name);
    }
    return o;
}

/* Sets the options of "a=1 b=? c=word". Only the rows above come here, and a test reads all of them. */
static void apply(rein_options *o, const char *row) {
    while (*row) {
        char name[48], value[48];
        const size_t n = strcspn(row, "="), v = strcspn(row + n + 1, " ");
        memcpy(name, row, n);
        name[n] = 0;
        memcpy(value, row + n + 1, v);
        value[v] = 0;
        if (strcmp(value, "?") == 0) rein_options_unset(o, name);
        else rein_options_set(o, name, value, NULL);
        row += n + 1 + v;
        row += strspn(row, " ");
    }
    memset(o->given, 0, sizeof o->given); /* the user gave none of them */
}

static const struct preset *find(const char *name) {
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(presets[i].info.name, name) == 0) return &presets[i];
    return NULL;
}

const char *rein_preset_name(size_t i) { return i < COUNT ? presets[i].info.name : NULL; }

const rein_preset_info *rein_preset_describe(const char *name) {
    const struct preset *p = find(name);
    return p ? &p->info : NULL;
}

static rein_status unknown_preset(const char *name, rein_error *err) {
    const char *names[COUNT + 1] = {NULL};
    for (size_t i = 0; i < COUNT; i++) names[i] = presets[i].info.name;
    const char *nearest = rein_nearest(name, names);
    if (nearest) return rein_fail_at(err, REIN_EINVAL, "preset", -1, "\"%.60s\" does not exist: did you mean %s?", name, nearest);
    return rein_fail_at(err, REIN_EINVAL, "preset", -1, "\"%.60s\" does not exist: rein explain --all lists them", name);
}

rein_status rein_options_init(rein_options *options, const char *preset, rein_error *err) {
    const struct preset *p = preset ? find(preset) : NULL;
    if (preset && !p && strcmp(preset, "none") != 0) return unknown_preset(preset, err);
    *options = nothing_given();
    if (p) apply(options, p->options);
    return REIN_OK;
}

/* ---- the gradient-bias table (docs/kl.md): the expected gradient of each KL term. Tested by exact enumeration. */
static const rein_kl_bias in_reward = {"k1 detached, in the reward", "exact",
                                       "exact when multiplied by stop(ρ), as a ratio surrogate does",
                                       "The gradient is that of KL(policy‖reference)."};
static const rein_kl_bias exactly_in_reward = {
    "the exact KL of the later tokens, detached, in the reward", "exact together with the exact KL as loss",
    "exact together with it where the ratio of the whole sequence multiplies both",
    "The second term of the gradient of KL(policy‖reference) over sequences: how a token changes the KL of the tokens after it. It "
    "replaces the sampled log-ratios of k1 by their expectations. With kl_estimator exact, kl_loss_coef of the same value and "
    "aggregation seq-mean-token-sum, the gradient is complete."};
static const rein_kl_bias in_advantage = {
    "k1 detached and centred, in the advantage", "exact", "exact when multiplied by stop(ρ), as a ratio surrogate does",
    "The gradient is that of KL(policy‖reference), but for the 1/n that a token has of its own centre."};
static const rein_kl_bias in_loss[] = {
    [REIN_K1] = {"k1 as loss", "no gradient in expectation", "wrong",
                 "The value estimates the KL, but its gradient averages to nothing: it adds noise and no pull."},
    [REIN_K2] = {"k2 as loss", "exact", "exact when multiplied by stop(ρ); as it stands, wrong",
                 "On-policy the gradient is that of KL(policy‖reference), although the value is not."},
    [REIN_K3] =
        {"k3 as loss", "wrong: the gradient of the forward KL(reference‖policy)", "wrong",
         "The value is an unbiased KL(policy‖reference), but the pull is that of the forward KL: mild near the reference, too "
         "strong where the reference has mass that the policy lost."},
    [REIN_KL_ABS] = {"|x| as loss", "wrong", "wrong", "A pull towards the reference that is the gradient of no KL."},
    [REIN_IS_K1] = {"ρ·k1 as loss, gradient through ρ", "exact", "exact",
                    "The gradient is that of KL(policy‖reference), also off-policy."},
    [REIN_KL_EXACT] =
        {"exact KL as loss", "exact for the token itself; over sequences exact together with kl_reward_exact of the same value",
         "wrong: the ratio of the tokens before it is missing",
         "The KL over the whole vocabulary and its exact gradient. It removes the variance of the sampled token, which k1, k2 and "
         "k3 have: "
         "what remains is that of the tokens before it. On its own it leaves out how a token changes the KL of later tokens."},
    [REIN_IS_K3] = {"ρ·k3 as loss, gradient through ρ", "exact", "exact",
                    "The gradient is that of KL(policy‖reference), also off-policy, with less variance than ρ·k1."},
};
static const rein_kl_bias reversed = {
    "k3 with the quotient current/ref", "wrong", "wrong",
    "It estimates chi²(policy‖reference) - KL: the same to second order near the reference, another divergence away "
    "from it, which explodes where the policy likes what the reference finds rare."};

const rein_kl_bias *rein_kl_bias_of(const rein_options *o, size_t i) {
    if (!o) return NULL;
    if (o->kl_reward_coef != 0 && i-- == 0) return &in_reward;
    if (o->kl_reward_exact != 0 && i-- == 0) return &exactly_in_reward;
    if (o->kl_penalty_coef != 0 && i-- == 0) return &in_advantage;
    if (o->kl_loss_coef != 0 && i == 0) {
        const int k3 = o->kl_estimator == REIN_K3 || o->kl_estimator == REIN_IS_K3;
        return k3 && o->kl_direction == REIN_CURRENT_OVER_REF ? &reversed : &in_loss[o->kl_estimator];
    }
    return NULL;
}
