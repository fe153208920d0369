/* adapter_files.c - adapters and models through the C readers and writers, for pytest.
 *
 *     adapter_files copy MODEL ADAPTER TO            opens the adapter, saves it
 *     adapter_files merge MODEL ADAPTER TO LARGEST   saves the model with it; ADAPTER may be -; LARGEST bytes a file, 0: the default
 *     adapter_files train MODEL TO                   saves the model, opened to train
 *     adapter_files modules LAYERS FILE              FILE is an array of adapter_config.json: one line each, the modules or a message
 * Exit 2 and the message on stderr when it is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/adapter_files.h"
#include "model/model_files.h"

static int refused(const rein_error *err) {
    fprintf(stderr, "%s\n", err->message);
    return 2;
}

static int copy(const char *directory, const char *from, const char *to) {
    rein_model *model;
    rein_adapter *adapter = NULL;
    rein_error err;
    rein_status status = rein_model_open(&model, directory, NULL, &err);
    if (!status) status = rein_adapter_open(&adapter, model, from, &err);
    if (!status) status = rein_adapter_save(adapter, to, &err);
    rein_adapter_close(adapter);
    rein_model_close(model);
    return status ? refused(&err) : 0;
}

static int merge(const char *directory, const char *from, const char *to, size_t largest, int train) {
    const rein_model_options options = {.train = train};
    rein_model *model;
    rein_adapter *adapter = NULL;
    rein_error err;
    rein_status status = rein_model_open(&model, directory, &options, &err);
    if (!status && strcmp(from, "-") != 0) status = rein_adapter_open(&adapter, model, from, &err);
    if (!status)
        status = largest ? rein_model_save_shards(model, adapter, to, largest, &err) : rein_model_save(model, adapter, to, &err);
    rein_adapter_close(adapter);
    rein_model_close(model);
    return status ? refused(&err) : 0;
}

static int print_modules(int64_t layers, const char *path) {
    const rein_model_config model = {.family = &rein_family_llama, .n_layers = layers};
    json_t *all = json_load_file(path, 0, NULL), *config;
    size_t i;
    json_array_foreach(all, i, config) {
        rein_adapter_config c;
        rein_error err;
        if (rein_adapter_config_parse(&c, &model, "", config, &err)) printf("%s", err.message);
        else
            for (int m = 0; m < REIN_MODULES; m++)
                if (c.modules >> m & 1) printf("%s ", rein_module_name(&model, (rein_module)m));
        printf("\n");
    }
    json_decref(all);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "copy")) return copy(argv[2], argv[3], argv[4]);
    if (argc == 6 && !strcmp(argv[1], "merge")) return merge(argv[2], argv[3], argv[4], strtoul(argv[5], NULL, 10), 0);
    if (argc == 4 && !strcmp(argv[1], "train")) return merge(argv[2], "-", argv[3], 0, 1);
    if (argc == 4 && !strcmp(argv[1], "modules")) return print_modules(atoll(argv[2]), argv[3]);
    fprintf(stderr, "usage: the comment of adapter_files.c\n");
    return 1;
}
