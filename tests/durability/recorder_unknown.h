/* A part of recorder.c: calls for which the replay has no rules. They are recorded so that the
 * replay raises an error.
 */

static void unknown_of(int fd, const char *call)
{
    if (output >= 0 && is_watched(fd))
        put_path(UNKNOWN, inode_of(fd), call);
}

#define UNKNOWN_NAME(name, parameters, arguments, path) \
    int name parameters \
    { \
        REAL(name); \
        char buffer[PATH_MAX]; \
        if (is_under(absolute(AT_FDCWD, path, buffer))) \
            put_path(UNKNOWN, 0, #name); \
        return real arguments; \
    }
UNKNOWN_NAME(link, (const char *old, const char *new), (old, new), new)
UNKNOWN_NAME(truncate, (const char *path, off_t size), (path, size), path)
UNKNOWN_NAME(remove, (const char *path), (path), path)

#define UNKNOWN_FD(type, name, parameters, arguments, fd) \
    type name parameters \
    { \
        REAL(name); \
        unknown_of(fd, #name); \
        return real arguments; \
    }
UNKNOWN_FD(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), fd)
UNKNOWN_FD(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size), fd)
UNKNOWN_FD(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), fd)
UNKNOWN_FD(int, posix_fallocate64, (int fd, off64_t at, off64_t size), (fd, at, size), fd)
UNKNOWN_FD(ssize_t, pwritev2, (int fd, const struct iovec *data, int count, off_t at, int flags),
           (fd, data, count, at, flags), fd)
UNKNOWN_FD(ssize_t, copy_file_range,
           (int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags),
           (in, in_at, out, out_at, size, flags), out)
UNKNOWN_FD(ssize_t, sendfile, (int out, int in, off_t *at, size_t size), (out, in, at, size), out)
UNKNOWN_FD(ssize_t, sendfile64, (int out, int in, off64_t *at, size_t size), (out, in, at, size),
           out)

static void mapped(int fd, int protection, int flags)
{
    if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED))
        unknown_of(fd, "mmap");
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t at)
{
    REAL(mmap);
    mapped(fd, protection, flags);
    return real(address, size, protection, flags, fd, at);
}

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t at)
{
    REAL(mmap64);
    mapped(fd, protection, flags);
    return real(address, size, protection, flags, fd, at);
}
