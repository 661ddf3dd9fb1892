/*
 * measure [--sync DIR] RESULT COMMAND [ARG...]: run one command and write what it took to the file RESULT.
 *
 * RESULT gets one line: wall_us user_us sys_us peak_kib status. The peak is the largest resident set of any one
 * process of the command. A small launcher is needed because a process inherits the peak of the one that starts
 * it: started from Python, everything would seem to need Python's memory. With --sync the file system that holds
 * DIR is synced when the command is done, as `sync -f DIR` does, inside the measured time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static long us(struct timeval t) { return t.tv_sec * 1000000L + t.tv_usec; }

static int sync_all_of(const char *dir)
{
    int fd = open(dir, O_RDONLY);
    int bad = fd < 0 || syncfs(fd) != 0;
    if (bad) perror(dir);
    if (fd >= 0) close(fd);
    return bad;
}

static int run(char **argv, struct rusage *used)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    while (wait4(child, &status, 0, used) < 0)
        if (errno != EINTR) { perror("wait4"); return 126; }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    struct rusage used = { 0 }, own = { 0 };
    const char *sync_dir = NULL;
    int at = 1;
    if (argc > 3 && !strcmp(argv[1], "--sync")) { sync_dir = argv[2]; at = 3; }
    if (argc < at + 2) { fprintf(stderr, "usage: measure [--sync DIR] RESULT COMMAND [ARG...]\n"); return 2; }

    long start_us = now_us();
    int status = run(argv + at + 1, &used);
    if (sync_dir && sync_all_of(sync_dir) && status == 0) status = 125;
    long wall_us = now_us() - start_us;

    getrusage(RUSAGE_SELF, &own);
    FILE *out = fopen(argv[at], "w");
    if (!out) { perror(argv[at]); return 1; }
    fprintf(out, "%ld %ld %ld %ld %d\n", wall_us, us(used.ru_utime) + us(own.ru_utime),
            us(used.ru_stime) + us(own.ru_stime), used.ru_maxrss, status);
    return fclose(out) ? 1 : 0;
}
