/*
 * gentree: make the trees that the benchmark copies, fast and always the same.
 *
 *   gentree tree DIR ENTRIES MEDIAN_BYTES WIDE[,WIDE...]   a tree of about ENTRIES names
 *   gentree file PATH BYTES                                one file of random bytes
 *
 * A tree has one flat directory per WIDE with that many names, a chain of directories 40 deep, and for the rest
 * directories of a few dozen names on several levels. Sizes are lognormal (sigma 1) around MEDIAN_BYTES, at most
 * 256 KiB; every 32nd file is empty, every 100th name is a symbolic link. Data is random, modes and times vary.
 * Two processes share the work; the same arguments give the same names, sizes and bytes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POOL_BYTES = 1 << 20, SIZE_MAX_BYTES = 1 << 18, PARTS = 64, PROCESSES = 2, CHAIN_DEPTH = 40, WIDE_MAX = 16 };

static uint64_t seed;
static char pool[POOL_BYTES];
static double median_bytes;

static uint64_t rnd(void) /* splitmix64 */
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static long below(long n) { return (long)(rnd() % (uint64_t)n); }
static double unit(void) { return ((double)(rnd() >> 11) + 1) / 9007199254740993.0; }
static void die(const char *what) { perror(what); exit(1); }

static void fill(char *at, size_t bytes)
{
    for (size_t i = 0; i + 8 <= bytes; i += 8) { uint64_t r = rnd(); memcpy(at + i, &r, 8); }
}

static size_t file_size(void)
{
    if (below(32) == 0) return 0;
    double normal = sqrt(-2 * log(unit())) * cos(6.283185307179586 * unit());
    double bytes = median_bytes * exp(normal);
    return bytes > SIZE_MAX_BYTES ? SIZE_MAX_BYTES : (size_t)bytes;
}

static void past(struct timespec t[2])
{
    t[0].tv_sec = t[1].tv_sec = 1500000000 + below(200000000);
    t[0].tv_nsec = t[1].tv_nsec = below(1000000000);
}

static void make_name(char *name, long number)
{
    static const char *ends[] = { ".dat", ".c", ".txt", ".nc", ".log", ".json", "", ".h" };
    sprintf(name, "%.*s_%lx%s", (int)below(25), "observation-forecast-field", number, ends[below(8)]);
}

static void make_file(int dir, long number)
{
    char name[80];
    struct timespec t[2];
    make_name(name, number);
    past(t);
    if (below(100) == 0) {
        if (symlinkat("../some/where/else", dir, name)) die("symlink");
        utimensat(dir, name, t, AT_SYMLINK_NOFOLLOW);
        return;
    }
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, below(8) ? 0644 : 0755);
    size_t bytes = file_size();
    if (fd < 0 || write(fd, pool + below(POOL_BYTES - SIZE_MAX_BYTES), bytes) != (ssize_t)bytes) die(name);
    futimens(fd, t);
    close(fd);
}

static int make_dir(int parent, const char *name)
{
    if (mkdirat(parent, name, 0755)) die(name);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) die(name);
    return fd;
}

static void close_dir(int fd)
{
    struct timespec t[2];
    past(t);
    futimens(fd, t);
    close(fd);
}

static void make_flat(int parent, const char *name, long entries)
{
    int dir = make_dir(parent, name);
    for (long i = 1; i < entries; i++) make_file(dir, i);
    close_dir(dir);
}

/* A directory with `entries` names in and below it: some files here, the rest shared among subdirectories. */
static void make_branch(int parent, const char *name, long entries)
{
    int dir = make_dir(parent, name);
    long left = entries - 1, here = left < 24 ? left : below(48);
    if (here > left) here = left;
    for (long i = 0; i < here; i++) make_file(dir, i);
    left -= here;
    for (long i = 0; left > 0; i++) {
        char sub[32];
        long share = left < 48 ? left : 1 + below(left / 2);
        sprintf(sub, "level%ld", i);
        make_branch(dir, sub, share);
        left -= share;
    }
    close_dir(dir);
}

static void make_chain(int parent, long depth)
{
    int dir = make_dir(parent, "deep");
    for (long i = 0; i < 2; i++) make_file(dir, i);
    if (depth > 1) make_chain(dir, depth - 1);
    close_dir(dir);
}

struct plan { int root; long branches, wide[WIDE_MAX]; int wides; };

static void make_part(const struct plan *p, int part)
{
    char name[32];
    seed = 1000003ULL * (uint64_t)(part + 1);
    sprintf(name, "part%02d", part);
    if (p->branches / PARTS > 0) make_branch(p->root, name, p->branches / PARTS);
    sprintf(name, "flat%02d", part);
    if (part < p->wides) make_flat(p->root, name, p->wide[part]);
    if (part == PARTS - 1) make_chain(p->root, CHAIN_DEPTH);
}

static int make_tree(char **argv)
{
    struct plan p = { .branches = atol(argv[3]) - 3 * CHAIN_DEPTH - 1 };
    median_bytes = atof(argv[4]);
    for (char *w = strtok(argv[5], ","); w && p.wides < WIDE_MAX; w = strtok(NULL, ","))
        p.branches -= p.wide[p.wides++] = atol(w);
    if (p.branches < 0) p.branches = 0;
    umask(022);
    if (mkdir(argv[2], 0755) || (p.root = open(argv[2], O_RDONLY | O_DIRECTORY)) < 0) die(argv[2]);
    fill(pool, POOL_BYTES);
    for (int k = 0; k < PROCESSES; k++)
        if (fork() == 0) {
            for (int part = k; part < PARTS; part += PROCESSES) make_part(&p, part);
            _exit(0);
        }
    int status, bad = 0;
    while (wait(&status) > 0) bad |= status;
    return bad != 0;
}

static int make_big(const char *path, long left)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0) die(path);
    while (left > 0) {
        long want = left < POOL_BYTES ? left : POOL_BYTES;
        fill(pool, POOL_BYTES);
        if (write(fd, pool, want) != want) die(path);
        left -= want;
    }
    return close(fd) != 0;
}

int main(int argc, char **argv)
{
    seed = 42;
    if (argc == 6 && !strcmp(argv[1], "tree")) return make_tree(argv);
    if (argc == 4 && !strcmp(argv[1], "file")) return make_big(argv[2], atol(argv[3]));
    fprintf(stderr, "usage: gentree tree DIR ENTRIES MEDIAN_BYTES WIDE[,WIDE...] | gentree file PATH BYTES\n");
    return 2;
}
