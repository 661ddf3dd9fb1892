// Changes files when it is told to, and says how long that has taken. Each line of its input is a name and a
// number: so many files of that name are made, written, closed and renamed, and every third is removed
// again. The answer is how many calls that were, how many took more than a millisecond of the
// processor's time, the microseconds of the longest by the clock, and how often the thread has waited
// for anything (getrusage(2)).
//
// With RAW it makes its system calls by number, as programs in Go do.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long calls, slow, longest_us;

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}
static long waited(void) {
    struct rusage used;
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
}
#ifdef RAW
#define OPEN(path) (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0644)
#define CLOSE(fd) (int)syscall(SYS_close, fd)
#define RENAME(from, to) (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0)
#define UNLINK(path) (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0)
#else
#define OPEN(path) open(path, O_WRONLY | O_CREAT, 0644)
#define CLOSE(fd) close(fd)
#define RENAME(from, to) rename(from, to)
#define UNLINK(path) unlink(path)
#endif
#define TIMED(call) ({ \
    double began = now(CLOCK_MONOTONIC), before = now(CLOCK_THREAD_CPUTIME_ID); \
    int result = call; \
    double used = now(CLOCK_THREAD_CPUTIME_ID) - before; \
    long took = (long)(now(CLOCK_MONOTONIC) - began); \
    calls++, slow += used > 1000; \
    if (took > longest_us) longest_us = took; \
    if (result < 0) perror(#call), exit(1); \
    result; })

static void change(const char *name, long number) {
    char draft[300], path[300];
    snprintf(draft, sizeof draft, "%s.%ld.new", name, number), snprintf(path, sizeof path, "%s.%ld", name, number);
    int fd = TIMED(OPEN(draft));
    if (dprintf(fd, "%s\n", path) < 0) perror(draft), exit(1);
    TIMED(CLOSE(fd)), TIMED(RENAME(draft, path));
    if (number % 3 == 2) TIMED(UNLINK(path));
}

int main(void) {
    char name[200];
    long count;
    while (scanf("%199s %ld", name, &count) == 2) {
        calls = slow = longest_us = 0;
        long before = waited();
        for (long number = 0; number < count; number++) change(name, number);
        printf("%ld %ld %ld %ld\n", calls, slow, longest_us, waited() - before), fflush(stdout);
    }
    return 0;
}
