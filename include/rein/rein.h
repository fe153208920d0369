/* rein.h - everything public. */
#ifndef REIN_H
#define REIN_H

#include "rein/base.h"
#include "rein/json.h"
#include "rein/model.h"
#include "rein/objective.h"
#include "rein/operation.h"
#include "rein/ranks.h"
#include "rein/report.h"
#include "rein/rollout.h"
#include "rein/text.h"
#include "rein/tokenizer.h"
#include "rein/train.h"
#include "rein/trajectory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The size of a public struct that callers fill or read field by field ("rein_batch"), or 0 for another name. For bindings that
 * declare such structs a second time: if the size differs, the binding does not fit this library. Thread-safe. */
REIN_API size_t rein_struct_size(const char *name);

#ifdef __cplusplus
}
#endif
#endif
