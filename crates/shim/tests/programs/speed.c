// Prints the nanoseconds that a call takes more than the same by plain system calls, which nothing
// stands in the place of, and those: processor time, the smallest of many rounds of both in turn.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
static int is_plain;
static void opened(const char *path, int flags) {
    int fd = is_plain ? syscall(SYS_openat, AT_FDCWD, path, flags, 0644) : open(path, flags, 0644);
    if (flags & O_WRONLY) write(fd, "x", 1);
    is_plain ? syscall(SYS_close, fd) : close(fd);
}
static void reading(void) { opened("f", O_RDONLY); }
static void writing(void) { opened("n", O_WRONLY | O_CREAT); }
static void beside(void) { opened("../beside", O_WRONLY | O_CREAT); }
static void elsewhere(void) { opened("/dev/shm/driftless-speed", O_WRONLY | O_CREAT); }
static void changing(void) {
    is_plain ? syscall(SYS_fchmodat, AT_FDCWD, "d/g", 0644) : chmod("d/g", 0644);
}
static double round_of(void (*call)(void), int times) {
    double begin = now();
    for (int n = 0; n < times; n++) call();
    return (now() - begin) / times;
}
int main(int count, char **words) {
    const struct { const char *name; void (*call)(void); int times; } all[] = {
        {"reading", reading, 2000}, {"writing", writing, 500}, {"beside", beside, 500},
        {"elsewhere", elsewhere, 500}, {"changing", changing, 500}};
    for (int at = 0; at < 5; at++) {
        if (count < 2 || strcmp(all[at].name, words[1])) continue;
        double least[2] = {1e9, 1e9};
        for (int round = 0; round < 200; round++) {
            is_plain = round % 2;
            double took = round_of(all[at].call, all[at].times);
            if (took < least[is_plain]) least[is_plain] = took;
        }
        printf("%.0f %.0f\n", least[0] - least[1], least[1]);
    }
    unlink("/dev/shm/driftless-speed");
    return 0;
}
