/* ranks.c - MPI is opened only where a launcher says that it has started several processes. */
#include "ranks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "progress.h"
#include "terminal.h"

static rein_ranks *joined; /* set once, before the command runs */

/* What launchers set for the processes that they start: Open MPI's mpirun, those with PMI (MPICH, Intel MPI), srun. In the script of a batch job
 * none of these is set; SLURM_NTASKS would be. */
static size_t number_in(const char *const *names, size_t otherwise) {
    for (; *names; names++) {
        const char *text = getenv(*names);
        char *end;
        const unsigned long number = text ? strtoul(text, &end, 10) : 0;
        if (text && end > text && !*end) return number;
    }
    return otherwise;
}

static size_t launched(void) {
    return number_in((const char *const[]){"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", NULL}, 1);
}

static size_t launched_rank(void) {
    return number_in((const char *const[]){"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", NULL}, 0);
}

/* Errors reach rank 0 by the last call of this rank. */
static void be_silent(void) {
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing < 0) return;
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    close(nothing);
}

static int join(const char *where, size_t expected) {
    rein_error err = {0};
    rein_transport transport;
    if (rein_transport_mpi(&transport, &err))
        return cli_say(CLI_WRONG, where, "%zu ranks were started, and %s", expected, err.message);
    if (rein_ranks_open(&joined, &transport, &err)) return cli_say_error(where, &err);
    if (rein_ranks_size(joined) == expected) return CLI_DONE;
    return cli_say(CLI_WRONG, where,
                   "%zu processes were started, but MPI joins only %zu of them: with srun, --mpi=pmix is needed (srun --mpi=list)",
                   expected, rein_ranks_size(joined));
}

int cli_ranks_open(const cli_command *command) {
    const size_t expected = launched();
    if (expected < 2) return CLI_DONE;
    if (launched_rank() > 0) be_silent();
    if (!command->ranks)
        return cli_say(CLI_WRONG, command->name,
                       "%zu ranks were started: rein %s works as one process, without mpirun or srun; rein run, train, sft, dpo, "
                       "reward and distill "
                       "share their work among ranks",
                       expected, command->name);
    return join(command->name, expected);
}

int cli_ranks_close(const cli_command *command, int status) {
    rein_error err = {0};
    const rein_status ended = rein_ranks_end(joined, status, status ? cli_last_failure() : NULL, &err);
    if (ended && !status) status = cli_say_error(command->name, &err);
    if (ended == REIN_ENOMEM) rein_ranks_abort(joined, status); /* this rank could not tell the others */
    rein_ranks_close(joined);
    joined = NULL;
    return status;
}

rein_ranks *cli_ranks(void) { return joined; }

int cli_ranks_first(void) { return rein_ranks_rank(joined) == 0; }

int cli_ranks_same(int *yes, const char *where) {
    rein_error err = {0};
    return rein_ranks_tell(joined, yes, sizeof *yes, &err) ? cli_say_error(where, &err) : CLI_DONE;
}

int cli_ranks_interrupted(int *interrupted, const char *where) {
    rein_error err = {0};
    return rein_ranks_any(interrupted, joined, cli_progress_interrupted(), &err) ? cli_say_error(where, &err) : CLI_DONE;
}
