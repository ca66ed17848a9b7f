/* Preloaded library that kills its process before one of the calls that change files under a
 * directory.
 *
 *   KILL_UNDER        the directory, as an absolute path without symbolic links
 *   kill_after(n)     called by the process: make n more such calls, and die before the next one;
 *                     -1 (at the start) never dies
 *   steps_made()      the number of such calls so far
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long left = -1, made;

void kill_after(long steps) { atomic_store(&left, steps); }
long steps_made(void) { return atomic_load(&made); }

static bool is_under(const char *path)
{
    static const char *under;
    if (under == NULL && (under = getenv("KILL_UNDER")) == NULL)
        return false;
    size_t size = strlen(under);
    return strncmp(path, under, size) == 0 && (path[size] == '/' || path[size] == 0);
}

static void step(const char *path)
{
    if (!is_under(path))
        return;
    atomic_fetch_add(&made, 1);
    if (atomic_load(&left) >= 0 && atomic_fetch_sub(&left, 1) == 0) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause(); /* no other thread may run on while the signal arrives */
    }
}

static void step_of(int fd)
{
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0)
        return;
    path[size] = 0;
    step(path);
}

#define REAL(name) static typeof(name) *real; if (real == NULL) real = dlsym(RTLD_NEXT, #name)

#define OPENS(name, parameters, arguments, path) \
    int name parameters \
    { \
        REAL(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        if (flags & (O_CREAT | O_TRUNC)) \
            step(path); \
        return real arguments; \
    }
OPENS(open, (const char *path, int flags, ...), (path, flags, mode), path)
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode), path)
OPENS(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), path)
OPENS(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode), path)

#define CHANGES(type, name, parameters, arguments, count) \
    type name parameters \
    { \
        REAL(name); \
        count; \
        return real arguments; \
    }
CHANGES(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), step_of(fd))
CHANGES(ssize_t, writev, (int fd, const struct iovec *data, int n), (fd, data, n), step_of(fd))
CHANGES(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at),
        step_of(fd))
CHANGES(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at),
        (fd, data, size, at), step_of(fd))
CHANGES(int, fsync, (int fd), (fd), step_of(fd))
CHANGES(int, link, (const char *from, const char *to), (from, to), step(to))
CHANGES(int, linkat, (int a, const char *from, int b, const char *to, int flags),
        (a, from, b, to, flags), step(to))
CHANGES(int, rename, (const char *from, const char *to), (from, to), step(to))
CHANGES(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), step(to))
CHANGES(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
        (a, from, b, to, flags), step(to))
CHANGES(int, unlink, (const char *path), (path), step(path))
CHANGES(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), step(path))
CHANGES(int, rmdir, (const char *path), (path), step(path))
CHANGES(int, mkdir, (const char *path, mode_t mode), (path, mode), step(path))
