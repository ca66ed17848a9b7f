/* Preloaded library that records a process's changes under one directory, and its sends.
 *
 * The library makes each call and then records it with its result, both under one lock, so that the
 * records are in the order of the calls. A sync has two records, one before the call and one after
 * it: the sync covers exactly the changes that were recorded before the first one. Every record is
 * appended to the recording by one system call. SIGUSR2 kills the process, but never between a call
 * and its record.
 *
 *   RECORD_UNDER    the directory, as an absolute path without symbolic links
 *   RECORD_TO       the file of the recording, outside of it
 *   RECORD_SENDS    "no" leaves the sends out
 *   RECORD_SHORTEN  SEED:SIZE: writes of at least SIZE bytes (2 or more) write a part, or are
 *                   interrupted, at random
 *   RECORD_FAIL     CALL:NAME:COUNT: after COUNT others, one such call fails with EIO
 *   RECORD_DROP     CALL:NAME: such calls do nothing and return 0, as if the program omitted them
 *
 * CALL is one letter: w(rite), t(runcate), s(ync of a file), d(irectory sync), r(ename), u(nlink).
 * NAME is a part of the file's name. For a directory sync it is a part of the name that the thread
 * created, renamed or removed last.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FDS 65536
#define MOST_VECTORS 1024

enum kind {
    CREATE = 'c', WRITE = 'w', TRUNCATE = 't', SYNC_BEGIN = 'b', SYNC_END = 'e', RANGE = 'g',
    RENAME = 'r', UNLINK = 'u', MKDIR = 'm', RMDIR = 'x', SEND = 's', FAILED = 'f', UNKNOWN = '?',
};

/* Little endian; the payload is data, a path, or two paths with a zero between. */
struct record {
    uint32_t size;      /* of the payload */
    int32_t kind;
    int64_t thread;
    uint64_t inode;
    int64_t at;         /* a position, a size, the port of the sender, a result */
    int64_t of;         /* the port of the receiver */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char under[PATH_MAX];
static size_t under_size;
static int output = -1;
static bool watched[MOST_FDS];
static uint64_t dice;
static size_t least_shortened;
static bool has_sends = true;
static char fail_call, drop_call;
static char fail_name[256], drop_name[256];
static long fail_count;
static __thread char last_name[PATH_MAX];
static volatile sig_atomic_t is_killed;
static void killed(int number);

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("RECORD_UNDER"), *path = getenv("RECORD_TO");
    if (text == NULL || path == NULL)
        return;
    under_size = strlen(text);
    memcpy(under, text, under_size + 1);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    /* Use a high descriptor: some programs close the lowest ones. */
    output = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 500);
    syscall(SYS_close, fd);
    if (output < 0 || signal(SIGUSR2, killed) == SIG_ERR)
        abort();
    if ((text = getenv("RECORD_SENDS")) != NULL)
        has_sends = strcmp(text, "no") != 0;
    if ((text = getenv("RECORD_SHORTEN")) != NULL
        && sscanf(text, "%lu:%zu", &dice, &least_shortened) != 2)
        abort();
    if ((text = getenv("RECORD_FAIL")) != NULL
        && sscanf(text, "%c:%255[^:]:%ld", &fail_call, fail_name, &fail_count) != 3)
        abort();
    if ((text = getenv("RECORD_DROP")) != NULL && sscanf(text, "%c:%255s", &drop_call, drop_name) < 1)
        abort();
}

/* Handle SIGUSR2: exit now, or in `unlock` if a call is not recorded yet. */
static void killed(int number)
{
    is_killed = true;
    if (number == SIGUSR2 && pthread_mutex_trylock(&lock) == 0)
        _exit(128 + SIGKILL);
}

static void unlock(void)
{
    if (is_killed)
        _exit(128 + SIGKILL);
    pthread_mutex_unlock(&lock);
}

static void put(enum kind kind, uint64_t inode, int64_t at, int64_t of, const struct iovec *data,
                int count, size_t size)
{
    struct record head = {
        (uint32_t)size, kind, syscall(SYS_gettid), inode, at, of,
    };
    struct iovec pieces[MOST_VECTORS + 1] = {{&head, sizeof head}};
    int code = errno, used = 1;
    size_t left = size;
    for (int i = 0; i < count && left > 0; i++) {
        size_t taken = data[i].iov_len < left ? data[i].iov_len : left;
        if (used > MOST_VECTORS)
            abort();
        pieces[used++] = (struct iovec){data[i].iov_base, taken};
        left -= taken;
    }
    if (syscall(SYS_writev, output, pieces, used) != (long)(sizeof head + size))
        abort();
    errno = code;
}

static void put_path(enum kind kind, uint64_t inode, const char *path)
{
    struct iovec data = {(void *)path, strlen(path)};
    put(kind, inode, 0, 0, &data, 1, data.iov_len);
}

static bool is_under(const char *path)
{
    return output >= 0 && strncmp(path, under, under_size) == 0
        && (path[under_size] == '/' || path[under_size] == 0);
}

static void path_of(int fd, char *out)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, out, PATH_MAX - 1);
    out[size < 0 ? 0 : size] = 0;
}

/* Return the absolute path of a name; the file need not exist. */
static const char *absolute(int directory, const char *path, char *out)
{
    size_t size;
    if (path[0] == '/')
        return path;
    if (directory != AT_FDCWD)
        path_of(directory, out);
    else if (getcwd(out, PATH_MAX) == NULL)
        out[0] = 0;
    size = strlen(out);
    snprintf(out + size, PATH_MAX - size, "/%s", path);
    return out;
}

static uint64_t inode_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

static bool is_watched(int fd)
{
    struct stat status;
    return fd >= 0 && fd < MOST_FDS && watched[fd] && fstat(fd, &status) == 0
        && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

static uint64_t roll(void)
{
    dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
    return dice >> 33;
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Return whether this call has to fail; if so, set errno and record the failure. */
static bool fails(char call, uint64_t inode, const char *path)
{
    if (fail_call != call || strstr(name_in(path), fail_name) == NULL || fail_count-- != 0)
        return false;
    put_path(FAILED, inode, path);
    errno = EIO;
    return true;
}

static bool is_dropped(char call, const char *path)
{
    return drop_call == call && strstr(name_in(path), drop_name) != NULL;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* -- opened, made, closed */

static int opened(int fd, bool is_new, bool is_cut, const char *path)
{
    int code = errno;
    if (fd >= 0 && fd < MOST_FDS) {
        watched[fd] = true;
        if (is_new) {
            put_path(CREATE, inode_of(fd), path);
            strcpy(last_name, path);
        } else if (is_cut) {
            put(TRUNCATE, inode_of(fd), 0, 0, NULL, 0, 0);
        }
    }
    errno = code;
    return fd;
}

#define OPEN(call, directory, path, flags) do { \
        char buffer[PATH_MAX]; \
        struct stat status; \
        mode_t mode = 0; \
        int fd; \
        if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) { \
            va_list arguments; \
            va_start(arguments, flags); \
            mode = va_arg(arguments, mode_t); \
            va_end(arguments); \
        } \
        const char *whole = absolute(directory, path, buffer); \
        if (!is_under(whole)) \
            return call; \
        pthread_mutex_lock(&lock); \
        bool is_new = ((flags) & O_CREAT) != 0 && stat(whole, &status) != 0; \
        fd = opened(call, is_new, ((flags) & O_TRUNC) != 0, whole); \
        unlock(); \
        return fd; \
    } while (0)

#define OPEN_PATH(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(name); \
        OPEN(real(path, flags, mode), AT_FDCWD, path, flags); \
    }
OPEN_PATH(open)
OPEN_PATH(open64)

#define OPEN_AT(name) \
    int name(int directory, const char *path, int flags, ...) \
    { \
        REAL(name); \
        OPEN(real(directory, path, flags, mode), directory, path, flags); \
    }
OPEN_AT(openat)
OPEN_AT(openat64)

int close(int fd)
{
    REAL(close);
    if (fd >= 0 && fd < MOST_FDS)
        watched[fd] = false;
    return real(fd);
}

/* -- written */

/* Return how many of `size` bytes to write, or -1 with EINTR for an interruption. */
static ssize_t part_of(size_t size)
{
    if (least_shortened == 0 || size < least_shortened || roll() % 2 == 0)
        return (ssize_t)size;
    if (roll() % 4 == 0) {
        errno = EINTR;
        return -1;
    }
    return 1 + (ssize_t)(roll() % (size - 1));
}

static size_t size_of(const struct iovec *data, int count)
{
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += data[i].iov_len;
    return size;
}

/* Write at the position `at`, or at the descriptor's position if it is -1. */
static ssize_t written(int fd, const struct iovec *data, int count, off_t at)
{
    static __typeof__(&pwritev) real_at;
    static __typeof__(&writev) real;
    struct iovec part[MOST_VECTORS];
    char path[PATH_MAX];
    ssize_t done, limit;
    if (real == NULL) {
        real_at = (__typeof__(&pwritev))dlsym(RTLD_NEXT, "pwritev");
        real = (__typeof__(&writev))dlsym(RTLD_NEXT, "writev");
    }
    if (output < 0 || !is_watched(fd))
        return at < 0 ? real(fd, data, count) : real_at(fd, data, count, at);
    path_of(fd, path);
    if (is_dropped('w', path))
        return (ssize_t)size_of(data, count);
    if (fails('w', inode_of(fd), path) || (limit = part_of(size_of(data, count))) < 0)
        return -1;
    int used = 0;
    for (size_t left = (size_t)limit; used < count && left > 0; used++) {
        part[used] = data[used];
        if (part[used].iov_len > left)
            part[used].iov_len = left;
        left -= part[used].iov_len;
    }
    done = at < 0 ? real(fd, part, used) : real_at(fd, part, used, at);
    if (done >= 0) {
        off_t start = at < 0 ? lseek(fd, 0, SEEK_CUR) - done : at;
        put(WRITE, inode_of(fd), start, 0, part, used, (size_t)done);
    } else if (errno != EINTR && errno != EAGAIN) {
        put_path(FAILED, inode_of(fd), path);
    }
    return done;
}

static int port_of(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    if (name(fd, (struct sockaddr *)&address, &size) != 0 || address.sin_family != AF_INET)
        return -1;
    return ntohs(address.sin_port);
}

static bool is_socket(int fd)
{
    struct stat status;
    return output >= 0 && has_sends && fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

static ssize_t sent(int fd, const struct iovec *data, int count, ssize_t done)
{
    if (output >= 0 && has_sends && done > 0) {
        int code = errno, from = port_of(fd, getsockname), to = port_of(fd, getpeername);
        if (from >= 0 && to >= 0)
            put(SEND, 0, from, to, data, count, (size_t)done);
        errno = code;
    }
    return done;
}

#define UNDER_LOCK(type, call) do { \
        pthread_mutex_lock(&lock); \
        type result = (call); \
        unlock(); \
        return result; \
    } while (0)

ssize_t writev(int fd, const struct iovec *data, int count)
{
    REAL(writev);
    if (is_watched(fd))
        UNDER_LOCK(ssize_t, written(fd, data, count, -1));
    if (!is_socket(fd))
        return real(fd, data, count);
    UNDER_LOCK(ssize_t, sent(fd, data, count, real(fd, data, count)));
}

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    struct iovec piece = {(void *)data, size};
    if (is_watched(fd))
        UNDER_LOCK(ssize_t, written(fd, &piece, 1, -1));
    if (!is_socket(fd))
        return real(fd, data, size);
    UNDER_LOCK(ssize_t, sent(fd, &piece, 1, real(fd, data, size)));
}

#define WRITE_AT(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t at) \
    { \
        struct iovec piece = {(void *)data, size}; \
        UNDER_LOCK(ssize_t, written(fd, &piece, 1, at)); \
    }
WRITE_AT(pwrite)
WRITE_AT(pwrite64)

#define WRITE_VECTORS_AT(name) \
    ssize_t name(int fd, const struct iovec *data, int count, off_t at) \
    { \
        UNDER_LOCK(ssize_t, written(fd, data, count, at)); \
    }
WRITE_VECTORS_AT(pwritev)
WRITE_VECTORS_AT(pwritev64)

ssize_t send(int fd, const void *data, size_t size, int flags)
{
    REAL(send);
    struct iovec piece = {(void *)data, size};
    UNDER_LOCK(ssize_t, sent(fd, &piece, 1, real(fd, data, size, flags)));
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to,
               socklen_t to_size)
{
    REAL(sendto);
    struct iovec piece = {(void *)data, size};
    UNDER_LOCK(ssize_t, sent(fd, &piece, 1, real(fd, data, size, flags, to, to_size)));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(sendmsg);
    UNDER_LOCK(ssize_t,
               sent(fd, message->msg_iov, (int)message->msg_iovlen, real(fd, message, flags)));
}

#define TRUNCATE_TO(name) \
    int name(int fd, off_t size) \
    { \
        REAL(name); \
        char path[PATH_MAX]; \
        int failed = 0; \
        pthread_mutex_lock(&lock); \
        if (output < 0 || !is_watched(fd)) { \
            failed = real(fd, size); \
        } else { \
            path_of(fd, path); \
            failed = fails('t', inode_of(fd), path) ? -1 : is_dropped('t', path) ? 1 \
                : real(fd, size); \
            if (failed == 0) \
                put(TRUNCATE, inode_of(fd), size, 0, NULL, 0, 0); \
        } \
        unlock(); \
        return failed < 0 ? -1 : 0; \
    }
TRUNCATE_TO(ftruncate)
TRUNCATE_TO(ftruncate64)

/* -- synced */

static int synced(int fd, int (*real)(int))
{
    struct stat status;
    char path[PATH_MAX];
    if (output < 0 || !is_watched(fd))
        return real(fd);
    fstat(fd, &status);
    path_of(fd, path);
    char call = S_ISDIR(status.st_mode) ? 'd' : 's';
    const char *name = call == 'd' ? last_name : path;
    pthread_mutex_lock(&lock);
    bool failed = fails(call, status.st_ino, name), dropped = !failed && is_dropped(call, name);
    if (!failed && !dropped)
        put(SYNC_BEGIN, status.st_ino, 0, 0, NULL, 0, 0);
    unlock();
    if (failed || dropped)
        return failed ? -1 : 0;
    int result = real(fd);
    pthread_mutex_lock(&lock);
    put(SYNC_END, status.st_ino, result, 0, NULL, 0, 0);
    unlock();
    return result;
}

int fsync(int fd)
{
    REAL(fsync);
    return synced(fd, real);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    return synced(fd, real);
}

int sync_file_range(int fd, off64_t at, off64_t size, unsigned flags)
{
    REAL(sync_file_range);
    pthread_mutex_lock(&lock);
    int failed = real(fd, at, size, flags);
    if (output >= 0 && is_watched(fd))
        put(RANGE, inode_of(fd), at, size, NULL, 0, 0);
    unlock();
    return failed;
}

/* -- names */

static int renamed(int from, const char *source, int to, const char *target)
{
    REAL(renameat);
    char first[PATH_MAX], second[PATH_MAX];
    const char *old = absolute(from, source, first), *new = absolute(to, target, second);
    if (!is_under(old) && !is_under(new))
        return real(from, source, to, target);
    if (fails('r', 0, new))
        return -1;
    strcpy(last_name, new);
    if (is_dropped('r', new))
        return 0;
    int failed = real(from, source, to, target);
    if (failed == 0) {
        struct iovec paths[2] = {{(void *)old, strlen(old) + 1}, {(void *)new, strlen(new)}};
        put(RENAME, 0, 0, 0, paths, 2, paths[0].iov_len + paths[1].iov_len);
    }
    return failed;
}

int rename(const char *source, const char *target)
{
    UNDER_LOCK(int, renamed(AT_FDCWD, source, AT_FDCWD, target));
}

int renameat(int from, const char *source, int to, const char *target)
{
    UNDER_LOCK(int, renamed(from, source, to, target));
}

static int removed(int directory, const char *path, int flags)
{
    REAL(unlinkat);
    char buffer[PATH_MAX];
    const char *whole = absolute(directory, path, buffer);
    if (!is_under(whole))
        return real(directory, path, flags);
    if (fails('u', 0, whole))
        return -1;
    strcpy(last_name, whole);
    if (is_dropped('u', whole))
        return 0;
    int failed = real(directory, path, flags);
    if (failed == 0)
        put_path(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, whole);
    return failed;
}

int unlink(const char *path)
{
    UNDER_LOCK(int, removed(AT_FDCWD, path, 0));
}

int unlinkat(int directory, const char *path, int flags)
{
    UNDER_LOCK(int, removed(directory, path, flags));
}

int rmdir(const char *path)
{
    UNDER_LOCK(int, removed(AT_FDCWD, path, AT_REMOVEDIR));
}

static int made(int directory, const char *path, mode_t mode)
{
    REAL(mkdirat);
    struct stat status;
    char buffer[PATH_MAX];
    const char *whole = absolute(directory, path, buffer);
    int failed = real(directory, path, mode);
    if (failed == 0 && is_under(whole) && stat(whole, &status) == 0)
        put_path(MKDIR, status.st_ino, whole);
    return failed;
}

int mkdir(const char *path, mode_t mode)
{
    UNDER_LOCK(int, made(AT_FDCWD, path, mode));
}

int mkdirat(int directory, const char *path, mode_t mode)
{
    UNDER_LOCK(int, made(directory, path, mode));
}

#include "recorder_unknown.h"
