/* Preloaded library: each fdatasync first waits for the milliseconds in the file SLOW_SYNC.
 *
 * Without the file, or with another text in it, the disk is as fast as it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *path = getenv("SLOW_SYNC");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    int delay_ms = 0;
    if (file != NULL) {
        if (fscanf(file, "%d", &delay_ms) != 1)
            delay_ms = 0;
        fclose(file);
    }
    if (delay_ms > 0) {
        struct timespec delay = {delay_ms / 1000, delay_ms % 1000 * 1000000L};
        nanosleep(&delay, NULL);
    }
    return real(fd);
}
