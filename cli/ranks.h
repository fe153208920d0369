/* ranks.h - a command that runs as one of several ranks, started by mpirun or srun. Rank 0 speaks and writes; the others are silent. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "help.h"
#include "rein/ranks.h"

/* Joins the other ranks, if there are any. An exit status: CLI_WRONG if the command is made for one process, or the program has no MPI. */
int cli_ranks_open(const cli_command *command);

/* Ends the work of this rank with an exit status; returns that of the program. */
int cli_ranks_close(const cli_command *command, int status);

/* The ranks of this program; NULL: it is alone. */
rein_ranks *cli_ranks(void);

/* 1 on the rank that writes. */
int cli_ranks_first(void);

/* *yes becomes that of rank 0. An exit status. */
int cli_ranks_same(int *yes, const char *where);

/* *interrupted becomes 1 if an interrupt reached any rank. An exit status. */
int cli_ranks_interrupted(int *interrupted, const char *where);

#endif
