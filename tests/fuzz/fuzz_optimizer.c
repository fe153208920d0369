/* fuzz_optimizer.c - any bytes as optimizer.safetensors, beside the adapter of a tiny model (libFuzzer).
 *
 * Refused: REIN_EINVAL, one line says why, and the moments and the count of steps stay as they were. Accepted: saved and loaded again, the
 * moments are the same. */
/* words: src/train/trainer_files.c src/model/safetensors*.c */
#include "fuzz/run_folder.h"
#include "model/tiny_model.h"
#include "train/trainer.h"

static rein_model *model;
static rein_adapter *adapter;
static rein_trainer *trainer;

static void open_all(void) {
    const char *const modules[] = {"q_proj"};
    const rein_lora_options lora = {.rank = 1, .alpha = 1, .modules = modules, .n_modules = 1};
    rein_error err = {0};
    need_folder();
    sub_folder("model"), sub_folder("checkpoint"), sub_folder("again");
    tiny_model(&TINY_LLAMA, in_folder("model"));
    require(!rein_model_open(&model, in_folder("model"), NULL, &err) && !rein_adapter_new(&adapter, model, &lora, &err) &&
                !rein_trainer_open(&trainer, model, adapter, &(rein_trainer_options){.temperature = 1}, &err) &&
                !rein_trainer_save(trainer, in_folder("checkpoint"), &err) && !rein_trainer_save(trainer, in_folder("again"), &err),
            "no trainer", err.message);
}

static void check_round_trip(float *moments) {
    const size_t bytes = trainer->floats * sizeof(float);
    const int64_t steps = trainer->steps;
    rein_error err = {0};
    memcpy(moments, trainer->first, bytes), memcpy(moments + trainer->floats, trainer->second, bytes);
    require(rein_trainer_save(trainer, in_folder("again"), &err) == REIN_OK, "it cannot be saved", err.message);
    require(rein_trainer_load(trainer, in_folder("again"), &err) == REIN_OK, "it cannot be loaded again", err.message);
    require(trainer->steps == steps && !memcmp(moments, trainer->first, bytes) &&
                !memcmp(moments + trainer->floats, trainer->second, bytes),
            "it is another one", "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rein_error err = {0};
    if (!trainer) open_all();
    const size_t bytes = trainer->floats * sizeof(float);
    float *moments = malloc(2 * bytes);
    memset(trainer->first, 0x55, bytes), memset(trainer->second, 0x55, bytes), memset(moments, 0x55, bytes);
    trainer->steps = 77;
    put_bytes("checkpoint/optimizer.safetensors", data, size);
    const rein_status status = rein_trainer_load(trainer, in_folder("checkpoint"), &err);
    if (status) {
        require_refusal(status, &err);
        require(trainer->steps == 77 && !memcmp(trainer->first, moments, bytes) && !memcmp(trainer->second, moments, bytes),
                "a refused file changed the trainer", err.message);
    } else check_round_trip(moments);
    free(moments);
    return 0;
}
