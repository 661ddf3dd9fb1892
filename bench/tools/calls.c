/*
 * calls: what an open and a close take through the C library, where a preloaded library stands in their place, and as plain
 * system calls, where none does. Both take turns in one process.
 *
 *   calls whole FOLDER BURSTS CALLS PAUSE_US     a file is opened for writing, by its whole path, one byte is written to it, and it is
 *                                                closed: CALLS times in a row in each of BURSTS bursts, with a pause between them
 *   calls named FOLDER BURSTS CALLS PAUSE_US     the same by its name in the working directory, which is FOLDER
 *   calls read FOLDER BURSTS CALLS PAUSE_US      CALLS descriptors of a file are opened for reading, and then closed
 *
 * Each burst is of one of the two kinds. The result is a line of JSON: the median seconds of one call, of each kind.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, CLOSE, ACTS, CALLS_MAX = 48, PATH_BYTES = 4096 };

/* What was measured: of each kind (0 by the C library, 1 plain) and act, the seconds of each sample. */
static double *samples[2][ACTS];
static long counts[2][ACTS];

static void die(const char *what) { perror(what); exit(1); }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void keep(int plain, int act, double seconds) { samples[plain][act][counts[plain][act]++] = seconds; }

static int open_one(int plain, const char *path, int flags)
{
    int fd = plain ? (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0644) : open(path, flags, 0644);
    if (fd < 0) die(path);
    return fd;
}

static void close_one(int plain, int fd)
{
    if (plain ? (int)syscall(SYS_close, fd) : close(fd)) die("close");
}

/* A sample is one call, since the next one writes another file. */
static void write_files(int plain, char paths[][PATH_BYTES], int calls)
{
    for (int i = 0; i < calls; i++) {
        double began = now();
        int fd = open_one(plain, paths[i], O_WRONLY | O_CREAT);
        double opened = now();
        if (write(fd, "x", 1) != 1) die("write");
        double written = now();
        close_one(plain, fd);
        double closed = now();
        keep(plain, OPEN, opened - began);
        keep(plain, CLOSE, closed - written);
    }
}

/* A sample is the mean of a burst: one such call takes little more than to look at the clock. */
static void read_files(int plain, char paths[][PATH_BYTES], int calls)
{
    int fds[CALLS_MAX];
    double began = now();
    for (int i = 0; i < calls; i++) fds[i] = open_one(plain, paths[0], O_RDONLY);
    double opened = now();
    for (int i = 0; i < calls; i++) close_one(plain, fds[i]);
    double closed = now();
    keep(plain, OPEN, (opened - began) / calls);
    keep(plain, CLOSE, (closed - opened) / calls);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(int plain, int act)
{
    qsort(samples[plain][act], counts[plain][act], sizeof(double), by_size);
    return samples[plain][act][counts[plain][act] / 2];
}

int main(int argc, char **argv)
{
    if (argc != 6 || (strcmp(argv[1], "whole") && strcmp(argv[1], "named") && strcmp(argv[1], "read"))) {
        fprintf(stderr, "usage: calls whole|named|read FOLDER BURSTS CALLS PAUSE_US\n");
        return 2;
    }
    static char paths[CALLS_MAX][PATH_BYTES];
    int is_read = !strcmp(argv[1], "read"), is_named = !strcmp(argv[1], "named");
    if (is_named && chdir(argv[2])) die(argv[2]);
    long bursts = atol(argv[3]), calls = atol(argv[4]), pause_us = atol(argv[5]);
    if (calls < 1 || calls > CALLS_MAX || bursts < 2) return 2;
    for (int plain = 0; plain < 2; plain++)
        for (int act = 0; act < ACTS; act++) samples[plain][act] = calloc(bursts * calls, sizeof(double));
    for (long i = 0; i < calls; i++) {
        snprintf(paths[i], PATH_BYTES, "%s%sf%ld", is_named ? "" : argv[2], is_named ? "" : "/", i);
        close_one(1, open_one(1, paths[i], O_WRONLY | O_CREAT));
    }
    struct timespec pause = { .tv_sec = pause_us / 1000000, .tv_nsec = pause_us % 1000000 * 1000 };
    for (long burst = 0; burst < 2 * bursts; burst++) {
        if (pause_us) while (nanosleep(&pause, NULL) && errno == EINTR) {}
        /* Each kind is as often the first of two. */
        int plain = (burst ^ burst >> 1) & 1;
        (is_read ? read_files : write_files)(plain, paths, (int)calls);
    }
    printf("{\"open\": %.9f, \"close\": %.9f, \"open_plain\": %.9f, \"close_plain\": %.9f, \"calls\": %ld}\n",
           median(0, OPEN), median(0, CLOSE), median(1, OPEN), median(1, CLOSE), bursts * calls);
    return 0;
}
