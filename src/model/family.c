/* family.c - the list of families. */
#include "family.h"

#include <stdio.h>
#include <string.h>

#define REIN_ADDRESS(name) &rein_family_##name,
static const rein_family *const FAMILIES[] = {REIN_FAMILY_LIST(REIN_ADDRESS)};
#undef REIN_ADDRESS
enum { N_FAMILIES = sizeof FAMILIES / sizeof *FAMILIES };

const rein_family *rein_family_at(size_t i) { return i < N_FAMILIES ? FAMILIES[i] : NULL; }

static const char CLASSIFIER[] = "ForSequenceClassification";

const char *rein_family_classifier(char to[REIN_ARCHITECTURE], const rein_family *family) {
    const char *name = family->architecture;
    if (family->classifier) return family->classifier;
    snprintf(to, REIN_ARCHITECTURE, "%.*s%s", (int)(strstr(name, "For") - name), name, CLASSIFIER);
    return to;
}

int rein_is_classifier(const char *architecture) {
    const size_t n = strlen(architecture), m = sizeof CLASSIFIER - 1;
    return n > m && !strcmp(architecture + n - m, CLASSIFIER);
}

static int has_architecture(const rein_family *family, const char *architecture) {
    char classifier[REIN_ARCHITECTURE];
    return !strcmp(architecture, family->architecture) || !strcmp(architecture, rein_family_classifier(classifier, family));
}

const rein_family *rein_family_find(const char *model_type, const char *architecture) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (architecture ? has_architecture(FAMILIES[i], architecture) : !strcmp(model_type, FAMILIES[i]->model_type))
            return FAMILIES[i];
    return NULL;
}
