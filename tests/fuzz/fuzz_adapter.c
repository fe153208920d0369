/* fuzz_adapter.c - any bytes as adapter_config.json and, after a byte 0, adapter_model.safetensors, for a tiny model (libFuzzer).
 *
 * Accepted: every factor is there, and the adapter saved and opened again is the same. Refused: REIN_EINVAL, one line says why, and there
 * is no adapter. Anything else is a bug. */
/* words: src/model/adapter*.c */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/require.h"
#include "model/adapter_files.h"
#include "model/tiny_model.h"

static rein_model *model;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    require(make_folder(NULL) == 0, "no folder", "");
    tiny_model(&TINY_LLAMA, folder);
    require(rein_model_open(&model, folder, NULL, NULL) == REIN_OK, "no model", "");
    remove_folder(NULL); /* mapped */
    return 0;
}

static void check_round_trip(const rein_adapter *a) {
    rein_adapter *again;
    require(make_folder(NULL) == 0, "no folder", "");
    require(rein_adapter_save(a, folder, NULL) == REIN_OK, "it cannot be saved", "");
    require(rein_adapter_open(&again, model, folder, NULL) == REIN_OK, "it cannot be opened again", "");
    require(again->modules == a->modules && again->rank == a->rank && again->rank_stabilized == a->rank_stabilized &&
                again->loras[0].scale == a->loras[0].scale && again->floats == a->floats,
            "it is another one", "");
    require(!memcmp(again->values, a->values, a->floats * sizeof *a->values), "the numbers are others", "");
    rein_adapter_close(again);
    remove_folder(NULL);
}

static void check_adapter(const rein_adapter *a, int again) {
    require(a->rank > 0 && a->alpha > 0 && a->modules && a->modules < 1u << REIN_MODULES, "what it is makes no sense", "");
    for (size_t slot = 0; slot < rein_adapter_slots(model); slot++) {
        const rein_lora *lora = &a->loras[slot];
        require(lora->rank == 0 || (isfinite(lora->scale) && lora->scale > 0 && lora->a && lora->b), "a factor is missing", "");
    }
    if (again) check_round_trip(a);
}

static void check_refusal(rein_status status, const rein_error *err, const rein_adapter *adapter) {
    require(status == REIN_EINVAL, "the status is not EINVAL", "");
    require(*err->message && !strpbrk(err->message, "\r\n"), "the message is not one line", "");
    require(!adapter, "there is an adapter after a failure", "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = memchr(data, 0, size);
    const size_t first = nul ? (size_t)(nul - data) : size;
    const rein_tensors_memory file = {"adapter_model.safetensors", nul ? nul + 1 : data, nul ? size - first - 1 : 0};
    json_t *json = NULL;
    rein_tensors *tensors = NULL;
    rein_adapter *adapter = NULL;
    rein_error err = {0};
    rein_status status = rein_json_parse(&json, (const char *)data, first, "adapter_config.json", REIN_JSON_NEEDS_OBJECT, &err);
    if (!status) status = rein_tensors_from_memory(&tensors, &file, 1, NULL, &err);
    if (!status) status = rein_adapter_from_files(&adapter, model, "adapter_config.json", json, tensors, &err);
    if (status) check_refusal(status, &err, adapter);
    else check_adapter(adapter, size % 16 == 0); /* files each time would be slow; what an input does depends on it alone */
    rein_adapter_close(adapter);
    rein_tensors_close(tensors);
    json_decref(json);
    return 0;
}
