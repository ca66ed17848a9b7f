/* Preloaded library: the fdatasync of a log fails once, with EIO, after FAIL_SYNC_AFTER successes.
 *
 * A kernel that cannot write data reports this once and drops the data: the next sync succeeds
 * although the data is not on the device. A program that retries the sync would acknowledge lost
 * data. So this library reports any sync of a log after the failed one on stderr.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int synced;

int fdatasync(int fd)
{
    static const char again[] = "a sync was tried again\n";
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path);
    if (size > 4 && memcmp(path + size - 4, ".log", 4) == 0) {
        const char *limit = getenv("FAIL_SYNC_AFTER");
        int others = atomic_fetch_add(&synced, 1);
        int good = limit == NULL ? 0 : atoi(limit);
        if (others == good) {
            errno = EIO;
            return -1;
        }
        if (others > good && write(STDERR_FILENO, again, sizeof again - 1) < 0)
            abort();
    }
    return real(fd);
}
