/*
 * busy: change a tree at a given pace, and see from outside when the changes have reached its replica.
 *
 *   busy files SRC DST FILES RATE BYTES FOLDERS   FILES new files in the folders d0, d1 ... that both trees have, RATE a
 *                                                 second; with RATE 0 as fast as it goes
 *   busy append SRC DST TIMES RATE                the file "log" of SRC gets a line TIMES times
 *   busy churn DIR RATE SECONDS                   files below DIR are changed, made, renamed and removed
 *
 * Whoever copies is not asked: the replica's folders are watched with inotify, and a file has arrived when it stands
 * there under its name with its whole size. Lag counts from the close of the file to its arrival, which says nothing of
 * whether it is durable. A file that has not arrived GIVE_UP_S after the last one was written is missing. The result is
 * one line of JSON; moments in it are those of CLOCK_MONOTONIC, in seconds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FOLDERS_MAX = 1024, BYTES_MAX = 1 << 20, GIVE_UP_S = 60, KNOWN_MAX = 20000, LINE_BYTES = 100 };

static char pool[BYTES_MAX];
static uint64_t seed = 7;

static uint64_t rnd(void) /* splitmix64 */
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void die(const char *what) { perror(what); exit(1); }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Waits for the moment of the step with this number. */
static void keep_pace(double began, long number, long rate)
{
    if (rate == 0) return;
    double at = began + (double)number / rate;
    struct timespec t = { .tv_sec = (time_t)at, .tv_nsec = (long)((at - (time_t)at) * 1e9) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

static void write_file(const char *path, int flags, long bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);
    if (fd < 0 || write(fd, pool + rnd() % 4096, bytes) != bytes) die(path);
    close(fd);
}

/* What is watched: where the watched folders are, and what is done about a name in one of them. */
static int watch_fd, folder_fds[FOLDERS_MAX], watches[FOLDERS_MAX], folders;
static void (*arrived)(int folder, const char *name);

static void watch_folder(const char *path)
{
    folder_fds[folders] = open(path, O_RDONLY | O_DIRECTORY);
    watches[folders] = inotify_add_watch(watch_fd, path, IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE);
    if (folder_fds[folders] < 0 || watches[folders] < 0) die(path);
    folders++;
}

static int folder_of(int watch)
{
    /* Watches are numbered in their order, from one on. */
    int guess = watch - watches[0];
    return guess >= 0 && guess < folders && watches[guess] == watch ? guess : -1;
}

/* Takes in what happens until nothing has for some milliseconds. */
static void look(int wait_ms)
{
    static char events[1 << 16] __attribute__((aligned(8)));
    struct pollfd ready = { .fd = watch_fd, .events = POLLIN };
    while (poll(&ready, 1, wait_ms) > 0) {
        ssize_t length = read(watch_fd, events, sizeof events);
        for (char *at = events; at < events + length;) {
            struct inotify_event *event = (void *)at;
            if (event->mask & IN_Q_OVERFLOW) { fprintf(stderr, "busy: its own queue was full\n"); exit(1); }
            int folder = folder_of(event->wd);
            if (event->len && folder >= 0) arrived(folder, event->name);
            at += sizeof *event + event->len;
        }
    }
}

/* busy files */

static long files, file_bytes, missing;
static double *closed, *seen;

static void file_arrived(int folder, const char *name)
{
    char *end;
    struct stat meta;
    long number = name[0] == 'f' ? strtol(name + 1, &end, 10) : -1;
    if (number < 0 || *end || number >= files || __atomic_load_n(&missing, __ATOMIC_ACQUIRE) <= 0 || seen[number]) return;
    if (fstatat(folder_fds[folder], name, &meta, 0) || meta.st_size != file_bytes) return;
    seen[number] = now();
    __atomic_sub_fetch(&missing, 1, __ATOMIC_RELEASE);
}

static double give_up;

static void *watch_all(void *unused)
{
    (void)unused;
    while (__atomic_load_n(&missing, __ATOMIC_ACQUIRE) > 0) {
        double until;
        look(20);
        __atomic_load(&give_up, &until, __ATOMIC_ACQUIRE);
        if (until != 0 && now() > until) break;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell_lag(double began, double ended)
{
    double *lag = malloc(files * sizeof *lag), last = ended;
    for (long i = 0; i < files; i++) {
        /* A file may be seen before its close has returned. */
        double arrival = seen[i] ? seen[i] : now();
        lag[i] = arrival > closed[i] ? arrival - closed[i] : 0;
        if (arrival > last) last = arrival;
    }
    qsort(lag, files, sizeof *lag, by_size);
    printf("{\"p50\": %.6f, \"p99\": %.6f, \"max\": %.6f, \"missing\": %ld, \"rate\": %.1f, \"closed\": %.6f, \"seen\": %.6f}\n",
           lag[files / 2], lag[files * 99 / 100], lag[files - 1], missing, files / (ended - began), ended, last);
}

static int write_files(char **argv)
{
    char path[4096];
    long rate = atol(argv[5]), wanted = atol(argv[7]);
    files = missing = atol(argv[4]);
    file_bytes = atol(argv[6]);
    if (wanted > FOLDERS_MAX || file_bytes > BYTES_MAX - 4096) return 2;
    closed = calloc(files, sizeof *closed);
    seen = calloc(files, sizeof *seen);
    arrived = file_arrived;
    for (long i = 0; i < wanted; i++) {
        snprintf(path, sizeof path, "%s/d%ld", argv[3], i);
        watch_folder(path);
    }
    pthread_t watcher;
    if (pthread_create(&watcher, NULL, watch_all, NULL)) die("pthread_create");
    double began = now();
    for (long i = 0; i < files; i++) {
        keep_pace(began, i, rate);
        snprintf(path, sizeof path, "%s/d%ld/f%ld", argv[2], i * wanted / files % wanted, i);
        if (rate) snprintf(path, sizeof path, "%s/d%ld/f%ld", argv[2], i % wanted, i);
        write_file(path, O_EXCL, file_bytes);
        closed[i] = now();
    }
    double ended = now(), until = ended + GIVE_UP_S;
    __atomic_store(&give_up, &until, __ATOMIC_RELEASE);
    pthread_join(watcher, NULL);
    tell_lag(began, ended);
    return 0;
}

/* busy append */

static long copies;

static void log_arrived(int folder, const char *name)
{
    (void)folder;
    copies += !strcmp(name, "log");
}

static int append(char **argv)
{
    char path[4096];
    struct stat meta;
    long times = atol(argv[4]), rate = atol(argv[5]);
    arrived = log_arrived;
    watch_folder(argv[3]);
    snprintf(path, sizeof path, "%s/log", argv[2]);
    double began = now();
    for (long i = 0; i < times; i++) {
        keep_pace(began, i, rate);
        write_file(path, O_APPEND, LINE_BYTES);
        look(0);
    }
    double ended = now();
    int whole = 0;
    while (!whole && now() < ended + GIVE_UP_S) {
        look(10);
        whole = !fstatat(folder_fds[0], "log", &meta, 0) && meta.st_size == times * LINE_BYTES;
    }
    double last = now();
    look(100);
    printf("{\"copies\": %ld, \"missing\": %d, \"took\": %.3f, \"lag\": %.3f}\n", copies, !whole, ended - began, last - ended);
    return 0;
}

/* busy churn */

static char *known[KNOWN_MAX];
static long met;

/* Keeps a fair sample of all files that there are. */
static int meet(const char *path, const struct stat *meta, int type, struct FTW *where)
{
    (void)where;
    if (type != FTW_F || !S_ISREG(meta->st_mode)) return 0;
    long at = met < KNOWN_MAX ? met : (long)(rnd() % (uint64_t)(met + 1));
    met++;
    if (at < KNOWN_MAX) {
        free(known[at]);
        known[at] = strdup(path);
    }
    return 0;
}

static void change_one(long number, long count)
{
    char fresh[4096];
    long at = rnd() % count;
    char *path = known[at];
    snprintf(fresh, sizeof fresh, "%.*s/n%ld", (int)(strrchr(path, '/') - path), path, number);
    switch (rnd() % 10) {
    case 0: case 1: case 2: case 3: write_file(path, O_APPEND, LINE_BYTES); break;
    case 4: chmod(path, 0600 + rnd() % 64); break;
    case 5: case 6: write_file(fresh, O_EXCL, LINE_BYTES); break;
    case 7: /* What goes makes room for what comes. */
        unlink(path);
        write_file(fresh, O_EXCL, LINE_BYTES);
        free(path);
        known[at] = strdup(fresh);
        break;
    default:
        if (rename(path, fresh) == 0) { free(path); known[at] = strdup(fresh); }
    }
}

static int churn(char **argv)
{
    long rate = atol(argv[3]), steps = rate * atol(argv[4]);
    if (nftw(argv[2], meet, 64, FTW_PHYS) || met == 0) die(argv[2]);
    long count = met < KNOWN_MAX ? met : KNOWN_MAX;
    double began = now();
    for (long i = 0; i < steps; i++) {
        keep_pace(began, i, rate);
        change_one(i, count);
    }
    printf("{\"steps\": %ld, \"took\": %.3f, \"files\": %ld}\n", steps, now() - began, met);
    return 0;
}

int main(int argc, char **argv)
{
    for (long i = 0; i < BYTES_MAX; i++) pool[i] = (char)rnd();
    if ((watch_fd = inotify_init1(IN_CLOEXEC)) < 0) die("inotify");
    if (argc == 8 && !strcmp(argv[1], "files")) return write_files(argv);
    if (argc == 6 && !strcmp(argv[1], "append")) return append(argv);
    if (argc == 5 && !strcmp(argv[1], "churn")) return churn(argv);
    fprintf(stderr, "usage: busy files SRC DST FILES RATE BYTES FOLDERS | busy append SRC DST TIMES RATE | busy churn DIR RATE SECONDS\n");
    return 2;
}
