/*
 * relay DELAY_US PORT: passes TCP connections on to 127.0.0.1:PORT, every byte DELAY_US later, each way.
 *
 * It stands in for a long line, where the kernel has no netem. Nothing limits the rate: bytes wait in a queue with the
 * time at which each is due. The destination hears of a connection three delays after it was begun, as over a line on
 * which three packets have to cross first; who connects reads the first answer after two round trips.
 *
 * It prints the port on which it listens. Each line on its standard input is answered by "THERE BACK OPEN": the bytes
 * that came from either side so far, and how many connections are open. It ends with its standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TAKE_BYTES = 1 << 18, WAITING_BYTES_MAX = 1 << 26, CONNECTIONS_MAX = 256, ENDS = 4 };

struct chunk { struct chunk *next; long due_us; size_t length, given; char bytes[]; };
struct way { int from, to, ended, blocked, done; size_t waiting; struct chunk *first, **last; long *total; };
struct connection { int near, far, broken; long connect_us; struct way there, back; };

static struct connection all[CONNECTIONS_MAX];
static int open_count;
static long delay_us, total_there, total_back;
static struct sockaddr_in destination;

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void prepare(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* Connections move within `all`, so `last` is set anew when a queue was empty; else it points into a chunk. */
static void append(struct way *w, const char *bytes, size_t length, long now)
{
    struct chunk *c = malloc(sizeof *c + length);
    if (!c) { perror("relay"); exit(1); }
    *c = (struct chunk){ .due_us = now + delay_us, .length = length };
    memcpy(c->bytes, bytes, length);
    if (!w->first) w->last = &w->first;
    *w->last = c;
    w->last = &c->next;
    w->waiting += length;
    *w->total += length;
}

/* Reads once; the end of the stream is a chunk of no length. False if the connection is broken. */
static int take(struct way *w, long now)
{
    static char bytes[TAKE_BYTES];
    ssize_t n = read(w->from, bytes, sizeof bytes);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    w->ended = n == 0;
    append(w, bytes, n, now);
    return 1;
}

/* Writes what is due, as far as the other side takes it. False if the connection is broken. */
static int give(struct way *w, long now)
{
    for (struct chunk *c; w->to >= 0 && (c = w->first) && c->due_us <= now;) {
        ssize_t n = c->length ? write(w->to, c->bytes + c->given, c->length - c->given) : 0;
        w->blocked = n < 0 && errno == EAGAIN;
        if (n < 0) return w->blocked || errno == EINTR;
        c->given += n;
        w->waiting -= n;
        if (c->given < c->length) continue;
        if (!c->length) { shutdown(w->to, SHUT_WR); w->done = 1; }
        w->first = c->next;
        free(c);
    }
    return 1;
}

static void accept_one(int listener, long now)
{
    int near = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (near < 0) return;
    if (open_count == CONNECTIONS_MAX) { close(near); return; }
    prepare(near);
    all[open_count++] = (struct connection){
        .near = near, .far = -1, .connect_us = now + 3 * delay_us,
        .there = { .from = near, .to = -1, .total = &total_there },
        .back = { .from = -1, .to = near, .total = &total_back },
    };
}

static void reach(struct connection *c)
{
    c->far = c->there.to = c->back.from = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->broken = c->far < 0 || connect(c->far, (void *)&destination, sizeof destination);
    if (!c->broken) prepare(c->far);
}

static void drop(int at)
{
    struct connection *c = &all[at];
    struct way *ways[] = { &c->there, &c->back };
    for (int i = 0; i < 2; i++)
        for (struct chunk *next, *k = ways[i]->first; k; k = next) { next = k->next; free(k); }
    close(c->near);
    if (c->far >= 0) close(c->far);
    *c = all[--open_count];
}

/* What to wait for on the two ends of one way, and until when. */
static void wishes(struct way *w, struct pollfd *polls, long *until_us)
{
    int full = w->waiting >= WAITING_BYTES_MAX;
    polls[0] = (struct pollfd){ .fd = w->ended || full ? -1 : w->from, .events = POLLIN };
    polls[1] = (struct pollfd){ .fd = w->blocked ? w->to : -1, .events = POLLOUT };
    if (w->first && w->to >= 0 && !w->blocked && w->first->due_us < *until_us) *until_us = w->first->due_us;
}

static void serve(struct connection *c, struct pollfd *polls, long now)
{
    if (c->far < 0 && c->connect_us <= now) reach(c);
    if (c->broken) return;
    c->broken = (polls[0].revents && !take(&c->there, now)) || (polls[2].revents && !take(&c->back, now))
        || !give(&c->there, now) || !give(&c->back, now);
}

/* False when standard input has ended. */
static int answer(void)
{
    char asked[64];
    if (read(STDIN_FILENO, asked, sizeof asked) <= 0) return 0;
    printf("%ld %ld %d\n", total_there, total_back, open_count);
    return 1;
}

static void wait_for(struct pollfd *polls, int listener)
{
    long until = now_us() + 3600 * 1000000L, left;
    polls[0] = (struct pollfd){ .fd = STDIN_FILENO, .events = POLLIN };
    polls[1] = (struct pollfd){ .fd = listener, .events = POLLIN };
    for (int i = 0; i < open_count; i++) {
        wishes(&all[i].there, polls + 2 + ENDS * i, &until);
        wishes(&all[i].back, polls + 4 + ENDS * i, &until);
        if (all[i].far < 0 && all[i].connect_us < until) until = all[i].connect_us;
    }
    left = until - now_us();
    if (left < 0) left = 0;
    ppoll(polls, 2 + ENDS * open_count, &(struct timespec){ left / 1000000, left % 1000000 * 1000 }, NULL);
}

static int listen_on_any_port(void)
{
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof own;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (void *)&own, length) || listen(fd, 64) || getsockname(fd, (void *)&own, &length)) {
        perror("relay");
        exit(1);
    }
    printf("%d\n", ntohs(own.sin_port));
    return fd;
}

int main(int argc, char **argv)
{
    static struct pollfd polls[2 + ENDS * CONNECTIONS_MAX];
    if (argc != 3) { fprintf(stderr, "usage: relay DELAY_US PORT\n"); return 2; }
    delay_us = atol(argv[1]);
    destination = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(argv[2])) };
    signal(SIGPIPE, SIG_IGN);
    setlinebuf(stdout);
    int listener = listen_on_any_port();
    for (;;) {
        wait_for(polls, listener);
        long now = now_us();
        for (int i = open_count - 1; i >= 0; i--) {
            serve(&all[i], polls + 2 + ENDS * i, now);
            if (all[i].broken || (all[i].there.done && all[i].back.done)) drop(i);
        }
        if (polls[1].revents) accept_one(listener, now);
        if (polls[0].revents && !answer()) return 0;
    }
}
