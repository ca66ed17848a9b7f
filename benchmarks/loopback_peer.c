/* The floor of a fetch over loopback, and the client of all servers of bench_data_loop and
   bench_broker_data.

   serve FILE SIZE REQUEST  print a port; answer every REQUEST bytes of a connection with a size
                            field and the next SIZE bytes of FILE, again from its start after
                            its end, by sendfile from one epoll loop
   load PORT CONNECTIONS AHEAD SECONDS REQUESTS_FILE
                            keep AHEAD requests in flight on each connection: those of the file
                            in turn, each with its size field. Print the responses, the bytes
                            of their bodies and the seconds after the first tenth of the time,
                            and how many responses there were in all; then the microseconds
                            that each of the counted responses took

   At the end of its time, or once a response counts where a standstill of the machine took all of
   it, load waits for the responses that are due, which do not count, so that a server is idle when
   the next one is measured. */
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

enum { EVENTS = 64, CHUNK = 256 * 1024, MOST_AHEAD = 64 };

struct connection {
    int fd;
    int received;     /* of the request, or of a response's size field */
    int head;         /* bytes of the size field to send */
    long left;        /* of the response */
    off_t at;         /* of the next byte in the file */
    uint8_t size[4];
    int owed;         /* load: requests to send */
    int due;          /* load: responses to requests that were begun */
    size_t sending;   /* load: position in the requests, and the end of this request */
    size_t sending_end;
    int first;        /* load: of `begun`, a ring, the oldest one without a response */
    double begun[MOST_AHEAD];
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
            if (now < 0)
                return 1;
            if (now == 0)
                one->at = 0; /* the end of the file */
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
    if (file_size <= 0) {
        fprintf(stderr, "%s is empty: there is nothing to send\n", path);
        exit(1);
    }
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

static uint8_t *requests;
static size_t requests_size;

static void read_requests(const char *path) {
    int file = open(path, O_RDONLY);
    check(file >= 0, path);
    requests_size = lseek(file, 0, SEEK_END);
    requests = malloc(requests_size);
    check(pread(file, requests, requests_size, 0) == (ssize_t)requests_size, path);
    close(file);
}

static size_t size_at(const uint8_t *field) {
    uint32_t size;
    memcpy(&size, field, 4);
    return ntohl(size);
}

/* Sends the requests that are owed, as far as the socket takes them. */
static void send_owed(struct connection *one) {
    while (one->owed) {
        if (one->sending == one->sending_end) {
            one->sending %= requests_size;
            one->sending_end = one->sending + 4 + size_at(requests + one->sending);
            one->begun[(one->first + one->due++) % MOST_AHEAD] = seconds();
        }
        ssize_t now = send(one->fd, requests + one->sending, one->sending_end - one->sending, 0);
        if (now < 0)
            return;
        one->sending += now;
        one->owed -= one->sending == one->sending_end;
    }
}

static void load(int port, int connections, int ahead, double wanted_s, const char *path) {
    int poll = epoll_create1(0), due = connections * ahead;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event events[EVENTS];
    long responses = 0, taken = 0, bytes = 0, room = 1 << 16;
    float *taken_us = malloc(room * sizeof *taken_us);
    double begin, counted = 0, now = 0, last;
    check(0 < ahead && ahead <= MOST_AHEAD, "ahead");
    read_requests(path);
    begin = last = seconds();
    for (int i = 0; i < connections; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        check(connect(fd, (void *)&at, sizeof at) == 0, "connect");
        watch(poll, fd, EPOLLIN | EPOLLOUT | EPOLLET)->owed = ahead;
    }
    while (due) {
        int count = epoll_wait(poll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            struct connection *one = events[i].data.ptr;
            for (;;) {
                send_owed(one);
                int is_field = one->left == 0;
                void *target = is_field ? (void *)(one->size + one->received) : buffer;
                long most = is_field ? 4 - one->received : one->left < CHUNK ? one->left : CHUNK;
                ssize_t got = recv(one->fd, target, most, 0);
                check(got != 0, "closed");
                if (got < 0)
                    break;
                if (is_field) {
                    one->received += got;
                    if (one->received < 4)
                        continue;
                    one->left = size_at(one->size);
                    one->received = 0;
                } else if ((one->left -= got) == 0) {
                    now = seconds();
                    responses++;
                    one->due--;
                    int goes_on = now < begin + wanted_s || taken == 0;
                    if (goes_on)
                        one->owed++;
                    else
                        due--;
                    if (counted && goes_on) {
                        if (taken == room)
                            taken_us = realloc(taken_us, (room *= 2) * sizeof *taken_us);
                        taken_us[taken++] = (now - one->begun[one->first]) * 1e6;
                        bytes += size_at(one->size);
                        last = now;
                    } else if (!counted && now >= begin + wanted_s / 10) {
                        counted = last = now;
                    }
                    one->first = (one->first + 1) % MOST_AHEAD;
                }
            }
        }
    }
    printf("%ld %ld %.6f %ld\n", taken, bytes, last - counted, responses);
    for (long i = 0; i < taken; i++)
        printf("%.0f ", taken_us[i]);
    printf("\n");
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
