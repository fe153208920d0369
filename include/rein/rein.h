/* rein.h - everything public. */
#ifndef REIN_H
#define REIN_H

#include "rein/base.h"
#include "rein/json.h"
#include "rein/model.h"
#include "rein/objective.h"
#include "rein/report.h"
#include "rein/rollout.h"
#include "rein/text.h"
#include "rein/tokenizer.h"
#include "rein/train.h"
#include "rein/trajectory.h"

#endif
