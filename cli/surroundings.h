/* surroundings.h - what a process inherits: descriptors that are closed, signals that would end it without a message. */
#ifndef CLI_SURROUNDINGS_H
#define CLI_SURROUNDINGS_H

/* Called first, before any file is opened. Standard files that are closed get a descriptor that can be neither read nor written: otherwise
 * the next file to be opened would have its number, and messages would be written into it. SIGPIPE and SIGXFSZ are ignored: a write that
 * fails is reported, and the step that is being made is saved. */
void cli_prepare_process(void);

#endif
