/* The floor of a fetch over loopback, and the client of both sides of bench_data_loop.

   serve FILE SIZE REQUEST  print a port; answer every REQUEST bytes of a connection with a size
                            field and the next SIZE bytes of FILE, again from its start after
                            its end, by sendfile from one epoll loop
   load PORT CONNECTIONS AHEAD SECONDS REQUEST_FILE
                            send the request AHEAD times on each connection, and again for each
                            response; print the responses and seconds after the first tenth of
                            the time, and all responses */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 64, CHUNK = 256 * 1024, MOST_REQUEST = 64 * 1024 };

struct connection {
    int fd;
    int received;     /* of the request, or of a response's size field */
    int head;         /* bytes of the size field to send */
    long left;        /* of the response */
    off_t at;         /* of the next byte in the file */
    uint8_t size[4];
};

static char buffer[CHUNK];
static off_t file_size;

static void check(int is_good, const char *what) {
    if (!is_good) {
        perror(what);
        exit(1);
    }
}

static struct connection *watch(int poll, int fd, uint32_t events) {
    int one = 1;
    struct connection *made = calloc(1, sizeof *made);
    struct epoll_event event = {events, {.ptr = made}};
    made->fd = fd;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    check(epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    return made;
}

/* Sends and receives what the socket takes and has; returns 0 at the end of the stream. */
static int serve_one(struct connection *one, int file, long size, int request) {
    static off_t next;
    for (;;) {
        if (one->head == 0 && one->left == 0) {
            ssize_t now = recv(one->fd, buffer, request - one->received, 0);
            if (now <= 0)
                return now < 0;
            one->received += now;
            if (one->received < request)
                continue;
            one->received = 0;
            one->head = 4;
            one->left = size;
            one->at = next;
            next = (next + size) % file_size;
        }
        if (one->head) {
            uint32_t field = htonl(size);
            if (send(one->fd, &field, 4, MSG_MORE) != 4)
                return 1;
            one->head = 0;
        }
        while (one->left) {
            ssize_t now = sendfile(one->fd, file, &one->at, one->left);
            if (now <= 0)
                return 1;
            one->left -= now;
        }
    }
}

static void serve(const char *path, long size, int request) {
    int file = open(path, O_RDONLY), listening = socket(AF_INET, SOCK_STREAM, 0);
    int poll = epoll_create1(0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    struct epoll_event event = {EPOLLIN, {.ptr = NULL}}, events[EVENTS];
    check(file >= 0, path);
    file_size = lseek(file, 0, SEEK_END);
    check(bind(listening, (void *)&at, sizeof at) == 0 && listen(listening, 128) == 0, "listen");
    getsockname(listening, (void *)&at, &length);
    check(epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct connection *one = events[i].data.ptr;
            if (one == NULL) {
                watch(poll, accept(listening, NULL, NULL), EPOLLIN | EPOLLOUT | EPOLLET);
            } else if (!serve_one(one, file, size, request)) {
                close(one->fd);
                free(one);
            }
        }
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static void load(int port, int connections, int ahead, double wanted_s, const char *path) {
    static char request[MOST_REQUEST];
    int poll = epoll_create1(0), file = open(path, O_RDONLY);
    ssize_t length = read(file, request, sizeof request);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event events[EVENTS];
    long responses = 0, skipped = 0;
    double begin, counted, now;
    check(length > 0, path);
    begin = counted = now = seconds();
    for (int i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        check(connect(fd, (void *)&at, sizeof at) == 0, "connect");
        watch(poll, fd, EPOLLIN);
        for (int sent = 0; sent < ahead; sent++)
            check(write(fd, request, length) == length, "write");
    }
    while (now < begin + wanted_s) {
        int count = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct connection *one = events[i].data.ptr;
            for (;;) {
                int is_field = one->left == 0;
                void *target = is_field ? (void *)(one->size + one->received) : buffer;
                long most = is_field ? 4 - one->received : one->left < CHUNK ? one->left : CHUNK;
                ssize_t got = recv(one->fd, target, most, 0);
                check(got != 0, "closed");
                if (got < 0)
                    break;
                if (is_field) {
                    one->received += got;
                    if (one->received == 4) {
                        uint32_t field;
                        memcpy(&field, one->size, 4);
                        one->left = ntohl(field);
                        one->received = 0;
                    }
                } else if ((one->left -= got) == 0) {
                    responses++;
                    check(write(one->fd, request, length) == length, "write");
                }
            }
        }
        now = seconds();
        if (counted == begin && now >= begin + wanted_s / 10 && now < begin + wanted_s / 2) {
            skipped = responses;
            counted = now;
        }
    }
    printf("%ld %.6f %ld\n", responses - skipped, now - counted, responses);
}

int main(int count, char **given) {
    signal(SIGPIPE, SIG_IGN);
    if (count == 5 && strcmp(given[1], "serve") == 0)
        serve(given[2], atol(given[3]), atoi(given[4]));
    if (count != 7 || strcmp(given[1], "load") != 0)
        return 2;
    load(atoi(given[2]), atoi(given[3]), atoi(given[4]), atof(given[5]), given[6]);
    return 0;
}
