/* rein.h - everything public. */
#ifndef REIN_H
#define REIN_H

#include "rein/base.h"
#include "rein/objective.h"

#endif
