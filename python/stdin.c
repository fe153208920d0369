/* For a librein.so that takes libjansson.a in. Debian's archive is made for programs: it names stdin, to tell it from other files, in a way
   that a shared library cannot. The library reads memory alone, so any stdin will do: the linker puts this one in its place. */

extern void *__wrap_stdin __attribute__((visibility("hidden")));
void *__wrap_stdin;
