# The system calls of this package: threads' locks, sockets, epoll (Linux only) and clocks.

from libc.stdint cimport int64_t, uint32_t
from posix.types cimport off_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    int RWF_NOWAIT
    Py_ssize_t preadv2(int fd, const iovec *vectors, int count, off_t position, int flags)

cdef extern from "<sys/vfs.h>" nogil:
    struct c_statfs "statfs":
        long f_type
    int fstatfs(int fd, c_statfs *system)

cdef extern from "<linux/magic.h>" nogil:
    long TMPFS_MAGIC

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    int MSG_MORE
    int MSG_NOSIGNAL
    Py_ssize_t recv(int fd, void *data, size_t size, int flags)
    Py_ssize_t sendmsg(int fd, const msghdr *message, int flags)
    int setsockopt(int fd, int level, int name, const void *value, unsigned int size)

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_CORK

cdef extern from "<sys/sendfile.h>" nogil:
    Py_ssize_t sendfile(int to, int source, off_t *position, size_t size)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void *ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP
        EPOLLRDHUP
        EPOLLET
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
    int epoll_create1(int flags)
    int epoll_ctl(int poll, int operation, int fd, epoll_event *event)
    int epoll_wait(int poll, epoll_event *events, int most, int timeout_ms)

cdef extern from "<sys/eventfd.h>" nogil:
    enum:
        EFD_CLOEXEC
        EFD_NONBLOCK
    int eventfd(unsigned int initial, int flags)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    enum:
        SIG_BLOCK
        SIG_SETMASK
    int sigfillset(sigset_t *signals)
    int pthread_sigmask(int how, const sigset_t *signals, sigset_t *old)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    Py_ssize_t c_read "read"(int fd, void *data, size_t size)
    Py_ssize_t c_write "write"(int fd, const void *data, size_t size)
