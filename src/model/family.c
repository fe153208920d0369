/* family.c - the list of families. */
#include "family.h"

#include <string.h>

#define REIN_ADDRESS(name) &rein_family_##name,
static const rein_family *const FAMILIES[] = {REIN_FAMILY_LIST(REIN_ADDRESS)};
#undef REIN_ADDRESS
enum { N_FAMILIES = sizeof FAMILIES / sizeof *FAMILIES };

const rein_family *rein_family_at(size_t i) { return i < N_FAMILIES ? FAMILIES[i] : NULL; }

const rein_family *rein_family_find(const char *model_type, const char *architecture) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (architecture ? !strcmp(architecture, FAMILIES[i]->architecture) : !strcmp(model_type, FAMILIES[i]->model_type))
            return FAMILIES[i];
    return NULL;
}
