/* Preloaded library with the locks of some network file systems: none. With NO_LINKS set there are
 * no hard links either.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define REAL(name) static typeof(name) *real; if (real == NULL) real = dlsym(RTLD_NEXT, #name)

int flock(int fd, int operation)
{
    (void)fd, (void)operation;
    errno = ENOLCK;
    return -1;
}

int lockf(int fd, int command, off_t size)
{
    (void)fd, (void)command, (void)size;
    errno = ENOLCK;
    return -1;
}

static int is_lock(int command)
{
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
           command == F_OFD_SETLKW;
}

#define FCNTL(name) \
    int name(int fd, int command, ...) \
    { \
        REAL(name); \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        if (is_lock(command)) { \
            errno = ENOLCK; \
            return -1; \
        } \
        return real(fd, command, argument); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

int link(const char *old, const char *new)
{
    REAL(link);
    if (getenv("NO_LINKS") != NULL) {
        errno = EPERM;
        return -1;
    }
    return real(old, new);
}

int linkat(int from, const char *old, int to, const char *new, int flags)
{
    REAL(linkat);
    if (getenv("NO_LINKS") != NULL) {
        errno = EPERM;
        return -1;
    }
    return real(from, old, to, new, flags);
}
