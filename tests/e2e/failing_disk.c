/* Preloaded library: a device that fails. While the file FAILING_DISK exists, writes and syncs of
 * files below the directories that it names fail with EIO.
 *
 * The file has a line for each directory, an absolute path. Where its first line is "sync", writes
 * succeed and only syncs fail, as with a kernel that caches writes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* Return whether the call has to fail; it then has errno EIO. */
static bool fails(int fd, bool is_sync)
{
    char text[2 * PATH_MAX], link[64], path[PATH_MAX], *rest = text, *line;
    const char *control = getenv("FAILING_DISK");
    int code = errno;
    int opened = control == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY);
    errno = code;
    if (opened < 0)
        return false;
    ssize_t size = syscall(SYS_read, opened, text, sizeof text - 1);
    syscall(SYS_close, opened);
    text[size < 0 ? 0 : size] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    errno = code;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strcmp(line, "sync") == 0 && !is_sync)
            return false;
        size_t length = strlen(line);
        if (length > 0 && strncmp(path, line, length) == 0
            && (path[length] == '/' || path[length] == 0)) {
            errno = EIO;
            return true;
        }
    }
    return false;
}

#define SYNC(name) \
    int name(int fd) \
    { \
        REAL(name); \
        return fails(fd, true) ? -1 : real(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define WRITE(name, parameters, arguments) \
    ssize_t name parameters \
    { \
        REAL(name); \
        return fails(fd, false) ? -1 : real arguments; \
    }
WRITE(write, (int fd, const void *data, size_t size), (fd, data, size))
WRITE(writev, (int fd, const struct iovec *data, int count), (fd, data, count))
WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
WRITE(pwritev, (int fd, const struct iovec *data, int count, off_t at), (fd, data, count, at))
WRITE(pwritev64, (int fd, const struct iovec *data, int count, off64_t at), (fd, data, count, at))
