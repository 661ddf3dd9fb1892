// What a program may count on whether the library is there or not.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void is(int right, const char *what) {
    if (!right) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        exit(9);
    }
}
#define IS(what) is(what, #what)

static void write_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    IS(fd >= 0), IS(write(fd, "x", 1) == 1), IS(close(fd) == 0);
}

#define KEEPS(call) ({ errno = EXDEV; IS((call) != -1); IS(errno == EXDEV); })
#define FAILS(call, error) ({ errno = 0; IS((call) == -1); IS(errno == error); })
static int errno_is_kept(void) {
    for (int twice = 0; twice < 2; twice++) {
        int fd;
        KEEPS(fd = open("n", O_WRONLY | O_CREAT, 0644));
        KEEPS(dup2(fd, 40)), KEEPS(close(fd)), KEEPS(close(40));
        KEEPS(mkdir("a", 0755)), KEEPS(chmod("a", 0700)), KEEPS(rename("a", "b")), KEEPS(rmdir("b"));
        KEEPS(truncate("n", 4)), KEEPS(unlink("n"));
        FAILS(open("nowhere/n", O_WRONLY), ENOENT), FAILS(mkdir("d", 0755), EEXIST);
        FAILS(rmdir("d"), ENOTEMPTY), FAILS(close(999), EBADF), FAILS(rename("nothing", "n"), ENOENT);
        FAILS(dup2(999, 3), EBADF), FAILS(chmod("nothing", 0), ENOENT);
    }
    return 0;
}

static void *writes_a_lot(void *number) {
    char path[40], other[40];
    snprintf(path, sizeof path, "n%ld", (long)number);
    snprintf(other, sizeof other, "o%ld", (long)number);
    for (int n = 0; n < 100; n++) {
        write_file(path), IS(rename(path, other) == 0), IS(unlink(other) == 0);
    }
    return NULL;
}
static int threads(void) {
    pthread_t all[48];
    for (long n = 0; n < 48; n++) IS(pthread_create(&all[n], NULL, writes_a_lot, (void *)n) == 0);
    for (int n = 0; n < 48; n++) IS(pthread_join(all[n], NULL) == 0);
    return 0;
}

static void *forks_a_lot(void *number) {
    char path[40], other[40];
    snprintf(path, sizeof path, "p%ld", (long)number), snprintf(other, sizeof other, "c%ld", (long)number);
    for (int n = 0; n < 40; n++) {
        pid_t child = fork();
        if (child == 0) write_file(other), _exit(0);
        write_file(path), IS(waitpid(child, &(int){0}, 0) == child);
    }
    return NULL;
}
static int forking_threads(void) {
    pthread_t all[8];
    for (long n = 0; n < 8; n++) IS(pthread_create(&all[n], NULL, forks_a_lot, (void *)n) == 0);
    for (int n = 0; n < 8; n++) IS(pthread_join(all[n], NULL) == 0);
    return 0;
}

static int closes_all(void) {
    // What the tests have open.
    for (int fd = 3; fd < 1024; fd++) close(fd);
    write_file("a");
    for (int fd = 3; fd < 1024; fd++) FAILS(close(fd), EBADF);
    write_file("b");
    return 0;
}
static int takes_all(void) {
    write_file("a");
    for (int fd = 3; fd < 1024; fd++) IS(dup2(0, fd) == fd);
    write_file("b");
    for (int fd = 3; fd < 1023; fd++) IS(fcntl(fd, F_GETFD) == 0);
    return 0;
}

static volatile int handled;
static void handler(int unused) {
    int fd = open("handled", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0) handled++;
    if (rename("handled", "handled2") == -1 || unlink("handled2") == -1) handled += 100000;
}
static int signals(void) {
    struct itimerval often = {{0, 300}, {0, 300}};
    signal(SIGALRM, handler), setitimer(ITIMER_REAL, &often, NULL);
    int count = 0;
    while (handled < 500) write_file("main"), count++;
    signal(SIGALRM, SIG_IGN);
    printf("%d %d\n", count, handled);
    return 0;
}

static int at_the_limit(void) {
    struct rlimit few = {24, 24};
    IS(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int last = -1, fd;
    while ((fd = open("f", O_RDONLY)) >= 0) last = fd;
    IS(errno == EMFILE && last == 23);
    IS(mkdir("unheard", 0755) == 0);
    IS(close(last) == 0), IS(mkdir("spooled", 0755) == 0);
    return 0;
}

static volatile int exceeded;
static void exceeds(int unused) { exceeded++; }
static void limited_to(rlim_t bytes) {
    struct rlimit limit;
    IS(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes, IS(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}
// Who makes a file and writes nothing is not at any limit.
static void make_file(void) {
    int fd = open("n", O_WRONLY | O_CREAT, 0644);
    IS(fd >= 0), IS(close(fd) == 0);
}
static int limits_itself(void) {
    rlim_t limits[] = {RLIM_INFINITY, 0, 1, 100 << 10, 200 << 10, (200 << 10) + 1, 300 << 10, 0, RLIM_INFINITY};
    for (int n = 0; n < sizeof limits / sizeof *limits; n++) limited_to(limits[n]), make_file();
    // Its own writes are its own affair.
    signal(SIGXFSZ, exceeds), limited_to(0);
    int fd = open("n", O_WRONLY);
    IS(fd >= 0), FAILS(write(fd, "x", 1), EFBIG), IS(exceeded == 1);
    IS(close(fd) == 0), make_file(), IS(exceeded == 1);
    return 0;
}

// Allows what the program calls itself, and kills it for all else.
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static void forbid(int by_number) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        ALLOW(__NR_read), ALLOW(__NR_write), ALLOW(__NR_close), ALLOW(__NR_openat), ALLOW(__NR_unlinkat),
#ifdef __NR_unlink
        ALLOW(__NR_unlink),
#endif
        ALLOW(__NR_exit_group), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog all = {sizeof filter / sizeof *filter, filter};
    IS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (by_number) IS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &all) == 0);
    else IS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0);
}
static int confined(const char *what) {
    int fd = open("n", O_WRONLY | O_CREAT, 0644), out = open(getenv("ELSEWHERE"), O_WRONLY | O_CREAT, 0644);
    FILE *stream = fopen("m", "w");
    IS(fd >= 0 && out >= 0 && stream && fputs("x", stream) >= 0);
    // What has no name is nothing to anybody.
    IS(open("nameless", O_WRONLY | O_CREAT, 0644) >= 0 && unlink("nameless") == 0);
    forbid(!strcmp(what, "by_number"));
    IS(write(fd, "x", 1) == 1 && write(out, "x", 1) == 1 && fputs("x", stream) >= 0);
    if (!strcmp(what, "exits")) exit(7);
    if (!strcmp(what, "_exits")) _exit(7);
    if (!strcmp(what, "opens")) fd = open("o", O_WRONLY | O_CREAT, 0644), IS(fd >= 0 && close(fd) == 0), _exit(7);
    if (!strcmp(what, "removes")) IS(unlink("f") == 0), _exit(7);
    IS(close(fd) == 0 && close(out) == 0 && fclose(stream) == 0);
    errno = EXDEV, IS(close(open("/proc/self/status", O_RDONLY)) == 0 && errno == EXDEV);
    return 7;
}
static int strictly_confined(void) {
    int fd = open("n", O_WRONLY | O_CREAT, 0644);
    IS(fd >= 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    IS(write(fd, "x", 1) == 1);
    syscall(SYS_exit, 7);
    return 2;
}
// It gains no rights, and is forbidden nothing; and it is refused what would forbid it something.
static int gains_none(void) {
    errno = 0, IS(prctl(PR_SET_SECCOMP, 77, 0, 0, 0) == -1 && errno == EINVAL);
    IS(prctl(PR_SET_NAME, "other", 0, 0, 0) == 0);
    write_file("a");
    if (fork() == 0) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), execl("/bin/sh", "sh", "-c", "echo x >b", NULL);
    wait(NULL), write_file("c");
    if (vfork() == 0) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), execl("/bin/sh", "sh", "-c", "echo x >p", NULL), _exit(1);
    wait(NULL), write_file("q");
    return 0;
}

/* Each way to have all descriptors that this program may have, though the library has one of them. */
static int takes_the_last(void) {
    struct rlimit few = {48, 48};
    IS(setrlimit(RLIMIT_NOFILE, &few) == 0 && close(0) == 0);
    int room = 0, taken[48];
    for (int fd = 0; fd < 48; fd++) room += fcntl(fd, F_GETFD) == -1;
    for (int way = 0; way < 5; way++) {
        char name[20];
        snprintf(name, sizeof name, "heard%d", way);
        IS(mkdir(name, 0755) == 0 && chmod(name, 0700) == 0 && rmdir(name) == 0);
        int count = 0, fd = -1;
        FILE *stream = NULL, *streams[48];
        while (count < 48) {
            if (way == 0) fd = open("f", O_RDONLY);
            if (way == 1) fd = dup(1);
            if (way == 2) fd = fcntl(1, F_DUPFD, 0);
            if (way == 3) fd = count % 2 ? creat("made", 0644) : openat(AT_FDCWD, "f", O_RDONLY);
            if (way == 4) streams[count] = stream = fopen("f", "r"), fd = stream ? 0 : -1;
            if (fd < 0) break;
            taken[count++] = fd;
        }
        IS(errno == EMFILE && count == room);
        for (int n = 0; n < count; n++) IS(way == 4 ? fclose(streams[n]) == 0 : close(taken[n]) == 0);
    }
    return 0;
}

static int storm(void) {
    for (int n = 0; n < 60; n++) {
        if (fork() == 0) {
            char path[40];
            snprintf(path, sizeof path, "n%d", n);
            int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            if (fork() == 0) execl("/bin/sh", "sh", "-c", "echo x >$0.sh", path, NULL);
            wait(NULL), write(fd, "x", 1), execl("/bin/true", "true", NULL);
        }
    }
    while (wait(NULL) > 0) {}
    return 0;
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    if (!strcmp(name, "errno")) return errno_is_kept();
    if (!strcmp(name, "threads")) return threads();
    if (!strcmp(name, "forking_threads")) return forking_threads();
    if (!strcmp(name, "closes_all")) return closes_all();
    if (!strcmp(name, "takes_all")) return takes_all();
    if (!strcmp(name, "signals")) return signals();
    if (!strcmp(name, "at_the_limit")) return at_the_limit();
    if (!strcmp(name, "limits_itself")) return limits_itself();
    if (!strcmp(name, "confined")) return confined(words[2]);
    if (!strcmp(name, "strictly_confined")) return strictly_confined();
    if (!strcmp(name, "gains_none")) return gains_none();
    if (!strcmp(name, "takes_the_last")) return takes_the_last();
    if (!strcmp(name, "storm")) return storm();
    if (!strcmp(name, "write")) return write_file("n"), 0;
    return 2;
}
