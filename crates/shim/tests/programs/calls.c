// Each call that the library announces, in the directory in which the program is started. It prints
// nothing unless something fails that should not.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

extern char **environ;
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);

static int well(long done, const char *what) {
    if (done == -1) {
        perror(what);
        syscall(SYS_exit_group, 9);
    }
    return (int)done;
}
#define OK(call) well((long)(call), #call)
#define CALL(name) static void name(void)

static int new_file(int flags) { return OK(open("n", O_RDWR | O_CREAT | flags, 0644)); }
static int old_file(void) { return OK(open("f", O_RDWR)); }
static int dir(void) { return OK(open("d", O_RDONLY | O_DIRECTORY)); }
static void put(int fd) { OK(write(fd, "x", 1)); }
static void put_and_close(int fd) { put(fd), OK(close(fd)); }
static void mark(void) { OK(mkdir("mark", 0755)); }
static void wait_for(pid_t child) {
    int end;
    OK(waitpid(child, &end, 0));
    if (end != 0) well(-1, "a child");
}

// Opening and closing.
CALL(open_written) { put_and_close(new_file(0)); }
CALL(open_not_written) { OK(close(new_file(0))); }
CALL(open_emptied) { OK(close(OK(open("f", O_WRONLY | O_TRUNC)))); }
CALL(open_made_only) { OK(close(OK(open("n", O_RDONLY | O_CREAT, 0644)))); }
CALL(open_read_only) { OK(close(OK(open("f", O_RDONLY)))); }
CALL(open_failed) { close(open("nowhere/f", O_WRONLY)); }
CALL(open64_written) { put_and_close(OK(open64("n", O_WRONLY | O_CREAT, 0644))); }
CALL(openat_written) { put_and_close(OK(openat(dir(), "n", O_WRONLY | O_CREAT, 0644))); }
CALL(openat64_written) { put_and_close(OK(openat64(dir(), "n", O_WRONLY | O_CREAT, 0644))); }
CALL(creat_written) { put_and_close(OK(creat("n", 0644))); }
CALL(creat64_written) { put_and_close(OK(creat64("n", 0644))); }
CALL(open_2) { put_and_close(OK(__open_2("f", O_WRONLY))); }
CALL(open64_2) { put_and_close(OK(__open64_2("f", O_WRONLY))); }
CALL(openat_2) { put_and_close(OK(__openat_2(dir(), "g", O_WRONLY))); }
CALL(openat64_2) { put_and_close(OK(__openat64_2(dir(), "g", O_WRONLY))); }
CALL(by_handle) {
    struct file_handle *handle = calloc(1, sizeof *handle + MAX_HANDLE_SZ);
    handle->handle_bytes = MAX_HANDLE_SZ;
    int mount;
    OK(name_to_handle_at(AT_FDCWD, "f", handle, &mount, 0));
    put_and_close(OK(open_by_handle_at(dir(), handle, O_WRONLY)));
}
CALL(temporary) {
    char name[3][20] = {"tmp_XXXXXX", "tmp_XXXXXX.c", "tmp_XXXXXX"};
    put_and_close(OK(mkstemp(name[0])));
    put_and_close(OK(mkstemps(name[1], 2)));
    put_and_close(OK(mkostemp(name[2], O_APPEND)));
}
CALL(temporary64) {
    char name[3][20] = {"tmp_XXXXXX", "tmp_XXXXXX.c", "tmp_XXXXXX.c"};
    put_and_close(OK(mkstemp64(name[0])));
    put_and_close(OK(mkostemps64(name[1], 2, 0)));
    put_and_close(OK(mkostemps(name[2], 2, 0)));
}
CALL(temporary_dir) {
    char name[] = "tmp_XXXXXX";
    if (!mkdtemp(name)) well(-1, "mkdtemp");
}
static void stream(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    fputs("x", file);
    fclose(file);
}
CALL(fopen_modes) { stream("n", "w"), stream("f", "r"), stream("f", "a"), stream("d/g", "r+"); }
CALL(fopen64_written) {
    FILE *file = fopen64("n", "w");
    fputs("x", file);
    fclose(file);
}
CALL(freopen_written) {
    FILE *file = fopen("n", "w");
    file = freopen("f", "a", file);
    mark();
    fputs("x", file);
    fclose(file);
}
CALL(freopen_64) { fclose(freopen64("f", "r", fopen("n", "w"))); }
CALL(fdopen_written) {
    FILE *file = fdopen(new_file(0), "w");
    fputs("x", file);
    fclose(file);
}
CALL(fcloseall_then_exit) {
    fputs("x", fopen("n", "w"));
    fcloseall();
    mark();
}
CALL(tmpfile_written) { fclose(tmpfile()); }
CALL(dup2_over) {
    int fd = new_file(0), null = OK(open("/dev/null", O_RDONLY));
    OK(dup2(null, fd));
    mark();
}
CALL(dup3_over) {
    int fd = new_file(0), null = OK(open("/dev/null", O_RDONLY));
    OK(dup3(null, fd, O_CLOEXEC));
    mark();
}
CALL(dup2_failed) {
    int fd = new_file(0);
    if (dup2(999, fd) != -1) well(-1, "dup2 of nothing");
    mark();
    put_and_close(fd);
}
CALL(dup2_of_itself) {
    int fd = new_file(0);
    OK(dup2(fd, fd));
    mark();
    put_and_close(fd);
}
CALL(copies) {
    int fd = new_file(0), copy = OK(dup(fd)), high = OK(fcntl(fd, F_DUPFD, 40));
    OK(close(fd)), OK(close(copy));
    mark();
    put_and_close(high);
}
CALL(close_range_all) {
    new_file(0);
    OK(close_range(3, ~0U, 0));
    mark();
}
CALL(close_range_later) {
    new_file(0);
    OK(close_range(3, ~0U, CLOSE_RANGE_CLOEXEC));
    mark();
}
CALL(closefrom_all) {
    new_file(0);
    closefrom(3);
    mark();
}
// Ends.
CALL(exit_open) { put(new_file(0)), mark(), exit(0); }
CALL(exit_buffered) { fputs("x", fopen("n", "w")), mark(), exit(0); }
CALL(exit_at_once) { put(new_file(0)), mark(), _exit(0); }
CALL(exit_by_c) { put(new_file(0)), mark(), _Exit(0); }
static int left_open;
static void last_word(void) { mark(), put(left_open); }
CALL(exit_quickly) { at_quick_exit(last_word), left_open = new_file(0), quick_exit(0); }
static void *ends_main(void *unused) {
    usleep(20000);
    put(left_open);
    return unused;
}
CALL(main_thread_is_gone) {
    pthread_t other;
    left_open = new_file(0);
    pthread_create(&other, NULL, ends_main, NULL);
    pthread_exit(NULL);
}
static void *ends_after_main(void *unused) {
    usleep(50000);
    put_and_close(left_open);
    mark();
    return unused;
}
CALL(closed_after_main_thread) {
    pthread_t other;
    left_open = new_file(0);
    pthread_create(&other, NULL, ends_after_main, NULL);
    pthread_exit(NULL);
}
static void *is_cancelled(void *fd) {
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_cancel(pthread_self());
    close((int)(long)fd);
    _exit(8);
}
CALL(cancelled_in_close) {
    for (int n = 0; n < 300; n++) {
        pthread_t other;
        void *end;
        pthread_create(&other, NULL, is_cancelled, (void *)(long)new_file(0));
        pthread_join(other, &end);
        if (end != PTHREAD_CANCELED) _exit(7);
    }
    mark();
}
// Children.
CALL(forked_writes) {
    int fd = new_file(0);
    pid_t child = OK(fork());
    if (child == 0) put(fd), _exit(0);
    wait_for(child);
    mark();
    OK(close(fd));
}
CALL(forked_oddly) {
    pid_t (*odd)(void) = (pid_t(*)(void))dlsym(RTLD_DEFAULT, "_Fork");
    pid_t child = OK(odd());
    if (child == 0) put_and_close(new_file(0)), _exit(0);
    wait_for(child);
}
CALL(vforked_runs) {
    int fd = new_file(0);
    pid_t child = OK(vfork());
    if (child == 0) {
        close(fd), dup2(2, 50), close(50);
        execl("/bin/sh", "sh", "-c", "echo x >m", NULL);
        _exit(1);
    }
    wait_for(child);
    mark();
    put_and_close(fd);
}
static void spawned(int with_path) {
    posix_spawn_file_actions_t acts;
    posix_spawn_file_actions_init(&acts);
    posix_spawn_file_actions_addopen(&acts, 1, "n", O_WRONLY | O_CREAT, 0644);
    char *words[] = {"echo", "x", NULL};
    pid_t child;
    int done = with_path ? posix_spawnp(&child, "echo", &acts, NULL, words, environ)
                         : posix_spawn(&child, "/bin/echo", &acts, NULL, words, environ);
    if (done != 0) well(-1, "posix_spawn");
    wait_for(child);
    mark();
}
CALL(spawned_writes) { spawned(0); }
CALL(spawnedp_writes) { spawned(1); }
CALL(system_writes) { OK(system("echo x >n")), mark(); }
CALL(popen_writes) {
    FILE *to = popen("cat >n", "w");
    fputs("x", to);
    OK(pclose(to)), mark();
}
#define TRUE_WORDS (char *[]){"true", NULL}
static int cloexec(void) {
    int fd = new_file(O_CLOEXEC);
    return put(fd), fd;
}
CALL(exec_l) { cloexec(), execl("/bin/sh", "sh", "-c", "exit $(($# + 0))", "a", NULL), _exit(9); }
CALL(exec_lp) { cloexec(), execlp("sh", "sh", "-c", "exit $(($# - 7))", "a", "1", "2", "3", "4", "5", "6", "7", NULL), _exit(9); }
CALL(exec_le) { cloexec(), execle("/bin/true", "true", NULL, environ), _exit(9); }
CALL(exec_v) { cloexec(), execv("/bin/true", TRUE_WORDS), _exit(9); }
CALL(exec_vp) { cloexec(), execvp("true", TRUE_WORDS), _exit(9); }
CALL(exec_ve) { cloexec(), execve("/bin/true", TRUE_WORDS, environ), _exit(9); }
CALL(exec_vpe) { cloexec(), execvpe("true", TRUE_WORDS, environ), _exit(9); }
CALL(exec_fd) { cloexec(), fexecve(OK(open("/bin/true", O_RDONLY)), TRUE_WORDS, environ), _exit(9); }
CALL(exec_at) { cloexec(), execveat(AT_FDCWD, "/bin/true", TRUE_WORDS, environ, 0), _exit(9); }
CALL(exec_passes_on) {
    OK(dup2(new_file(0), 1));
    execl("/bin/sh", "sh", "-c", "mkdir mark; echo x", NULL);
    _exit(9);
}
CALL(exec_failed) {
    int fd = cloexec();
    execv("/nowhere", TRUE_WORDS), execl("/nowhere", "true", NULL);
    mark();
    put_and_close(fd);
}
// Contents.
CALL(truncate_path) { OK(truncate("f", 1)), OK(truncate64("l", 9)); }
CALL(truncate_open) {
    int fd = old_file();
    OK(ftruncate(fd, 1)), OK(ftruncate64(fd, 2)), OK(close(fd));
}
CALL(given_room) {
    int fd = new_file(0);
    OK(fallocate(fd, 0, 0, 4096)), OK(fallocate64(fd, 0, 4096, 4096));
    if (posix_fallocate(fd, 0, 10) || posix_fallocate64(fd, 0, 20)) well(-1, "posix_fallocate");
    OK(close(fd));
}
CALL(copied_by_kernel) {
    int from = OK(open("f", O_RDONLY)), to = new_file(0);
    if (copy_file_range(from, NULL, to, NULL, 3, 0) < 0 && errno != EXDEV) well(-1, "copy");
    OK(close(to));
}
CALL(sent_to) {
    int from = OK(open("f", O_RDONLY)), to = new_file(0);
    off_t zero = 0;
    OK(sendfile(to, from, &zero, 2)), OK(sendfile64(to, from, NULL, 1)), OK(close(to));
}
CALL(spliced_to) {
    int pipes[2], to = new_file(0);
    OK(pipe(pipes)), put(pipes[1]), OK(splice(pipes[0], NULL, to, NULL, 1, 0)), OK(close(to));
}
static int unseen(void) { return OK(syscall(SYS_openat, AT_FDCWD, "n", O_RDWR | O_CREAT, 0644)); }
CALL(unseen_then_cut) {
    int fd = unseen();
    OK(ftruncate(fd, 5)), OK(close(fd));
}
CALL(unseen_then_written) { put_and_close(unseen()); }
CALL(closed_unseen) {
    OK(syscall(SYS_close, new_file(0)));
    OK(close(OK(open("f", O_RDONLY))));
}
CALL(received) {
    int pair[2], got, fd;
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    char space[CMSG_SPACE(sizeof fd)] = {0}, byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
    fd = unseen();
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    OK(sendmsg(pair[0], &message, 0)), OK(syscall(SYS_close, fd));
    OK(recvmsg(pair[1], &message, 0));
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    put_and_close(got);
}
static int nameless(void) { return OK(open(".", O_TMPFILE | O_RDWR, 0644)); }
static void give_name(int fd) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, path, AT_FDCWD, "n", AT_SYMLINK_FOLLOW));
}
CALL(nameless_for_ever) { put_and_close(nameless()); }
CALL(nameless_then_named) {
    int fd = nameless();
    give_name(fd);
    put_and_close(fd);
}
CALL(nameless_named_empty) {
    int fd = nameless();
    OK(linkat(fd, "", AT_FDCWD, "n", AT_EMPTY_PATH));
    put_and_close(fd);
}
// Memory.
static char *in_memory(void) {
    int fd = OK(open("f", O_RDWR));
    OK(ftruncate(fd, 16384));
    char *at = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) well(-1, "mmap");
    OK(close(fd)), mark();
    return at;
}
CALL(memory_unmapped) {
    char *at = in_memory();
    at[0] = 'x', OK(munmap(at, 16384));
}
CALL(memory_in_parts) {
    char *at = in_memory();
    OK(munmap(at, 4096)), OK(munmap(at + 12288, 4096)), OK(munmap(at + 4096, 8192));
    OK(mkdir("end", 0755));
}
CALL(memory_until_exit) { in_memory()[0] = 'x'; }
CALL(memory_until_exit_at_once) { in_memory()[0] = 'x', _exit(0); }
CALL(memory_until_exec) { in_memory()[0] = 'x', execv("/bin/true", TRUE_WORDS); }
CALL(memory_synced) {
    char *at = in_memory();
    at[0] = 'x', OK(msync(at, 4096, MS_SYNC)), OK(mkdir("end", 0755)), _exit(0);
}
CALL(memory_moved) {
    char *at = in_memory(), *to = mremap(at, 16384, 8192, 0);
    if (to == MAP_FAILED) well(-1, "mremap");
    char *hole = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    to = mremap(to, 8192, 16384, MREMAP_MAYMOVE | MREMAP_FIXED, hole);
    OK(munmap(at, 16384)), OK(mkdir("end", 0755)), OK(munmap(to, 16384));
    OK(mkdir("over", 0755));
}
CALL(memory_covered) {
    char *at = in_memory();
    mmap(at, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    OK(mkdir("end", 0755));
}
CALL(memory_private) {
    int fd = OK(open("f", O_RDONLY));
    munmap(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0), 4096), OK(close(fd));
}
// Names.
CALL(names_made) {
    int d = dir();
    OK(mkdir("a", 0755)), OK(mkdirat(d, "b", 0755));
    OK(mknod("c", S_IFREG | 0644, 0)), OK(mknodat(d, "d", S_IFREG | 0644, 0));
    OK(mkfifo("e1", 0644)), OK(mkfifoat(d, "f", 0644));
    OK(symlink("f", "g")), OK(symlinkat("g", d, "h"));
    OK(link("f", "i")), OK(linkat(d, "g", d, "j", 0));
}
CALL(names_not_made) { mkdir("d", 0755), rmdir("f"), unlink("d"), rename("nothing", "n"), symlink("x", "f"); }
CALL(names_removed) {
    OK(unlink("f")), OK(unlinkat(dir(), "g", 0)), OK(rmdir("e"));
    OK(unlinkat(AT_FDCWD, "d", AT_REMOVEDIR));
}
CALL(removed_by_c) { OK(remove("f")), OK(remove("e")); }
CALL(names_changed) {
    int d = dir();
    OK(rename("f", "n")), OK(renameat(d, "g", AT_FDCWD, "o"));
    OK(renameat2(AT_FDCWD, "o", d, "p", RENAME_NOREPLACE));
    OK(renameat2(AT_FDCWD, "n", d, "p", RENAME_EXCHANGE));
}
CALL(left_whiteout) { OK(renameat2(AT_FDCWD, "f", AT_FDCWD, "n", RENAME_WHITEOUT)); }
CALL(came_and_went) { OK(rename("f", "../went")), OK(rename("../went", "d/came")); }
CALL(linked_from_elsewhere) { OK(link("f", "../linked")), OK(unlink("../linked")); }
CALL(socket_named) {
    struct sockaddr_un address = {AF_UNIX, "s"};
    OK(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&address, sizeof address));
    struct sockaddr_un hidden = {AF_UNIX, "\0hidden-driftless-test"};
    OK(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&hidden, 20));
}
// Paths.
CALL(path_forms) {
    OK(symlink("d", "ld"));
    put_and_close(OK(open("ld/n", O_WRONLY | O_CREAT, 0644)));
    OK(mkdir("ld/../a/", 0755)), OK(mkdir("./d//./b", 0755)), OK(chmod("ld", 0700));
    OK(chdir("ld")), OK(mkdir("../c", 0755)), OK(rename("b", "../e/b"));
    char absolute[9000];
    if (!getcwd(absolute, 4000)) well(-1, "getcwd");
    strcat(absolute, "/../e/./b"), OK(rmdir(absolute));
}
CALL(renamed_while_open) {
    int fd = new_file(0);
    OK(rename("n", "d/m")), OK(rename("d", "dd")), put_and_close(fd);
}
CALL(elsewhere_while_open) {
    int fd = new_file(0);
    OK(chdir("d")), put_and_close(fd);
}
CALL(same_name_elsewhere) {
    int fd = new_file(0), other;
    OK(chdir("d")), other = new_file(0);
    put_and_close(fd), put_and_close(other);
}
CALL(link_in_its_place) {
    int fd = new_file(0);
    OK(rename("n", "d/m")), OK(symlink("d/m", "n")), put_and_close(fd);
}
CALL(directory_renamed) {
    OK(chdir("d"));
    int fd = new_file(0);
    OK(rename("../d", "../dd")), OK(symlink("dd", "../d")), OK(chdir("../d")), put_and_close(fd);
}
CALL(removed_while_open) {
    int fd = new_file(0);
    OK(unlink("n")), put_and_close(fd);
}
CALL(other_name_while_open) {
    int fd = old_file();
    OK(link("f", "other")), OK(unlink("f")), put_and_close(fd);
}
CALL(named_as_if_deleted) { put_and_close(OK(open("x (deleted)", O_WRONLY | O_CREAT, 0644))); }
CALL(odd_names) {
    put_and_close(OK(open("a b\n\xff", O_WRONLY | O_CREAT, 0644)));
    OK(mkdir("\xfe", 0755));
}
CALL(too_deep) {
    char name[201];
    memset(name, 'n', 200), name[200] = 0;
    for (int n = 0; n < 22; n++) {
        syscall(SYS_mkdirat, AT_FDCWD, name, 0755), OK(chdir(name));
    }
    put_and_close(new_file(0));
    OK(mkdir("a", 0755));
}
CALL(beside) { put_and_close(OK(open("../tree2", O_WRONLY | O_CREAT, 0644))), OK(unlink("../tree2")); }
// Attributes.
CALL(modes) {
    int fd = OK(open("f", O_RDONLY));
    OK(chmod("l", 0600)), OK(fchmod(fd, 0644)), OK(fchmodat(dir(), "g", 0600, 0));
}
CALL(owners) {
    int fd = OK(open("f", O_RDONLY));
    uid_t me = getuid();
    OK(chown("l", me, -1)), OK(lchown("l", me, -1)), OK(fchown(fd, me, -1));
    OK(fchownat(dir(), "g", me, -1, 0)), OK(fchownat(AT_FDCWD, "l", me, -1, AT_SYMLINK_NOFOLLOW));
    OK(fchownat(fd, "", me, -1, AT_EMPTY_PATH));
}
CALL(times) {
    int fd = OK(open("f", O_RDONLY));
    OK(utime("l", NULL)), OK(utimes("f", NULL)), OK(lutimes("l", NULL)), OK(futimes(fd, NULL));
    OK(futimesat(dir(), "g", NULL)), OK(futimens(fd, NULL)), OK(utimensat(AT_FDCWD, "l", NULL, AT_SYMLINK_NOFOLLOW));
    OK(utimensat(dir(), "g", NULL, 0));
}
CALL(extended) {
    int fd = OK(open("f", O_RDONLY));
    const char *name = "trusted.x";
    OK(setxattr("l", name, "1", 1, 0)), OK(removexattr("f", name)), OK(lsetxattr("l", name, "1", 1, 0));
    OK(lremovexattr("l", name)), OK(fsetxattr(fd, name, "1", 1, 0)), OK(fremovexattr(fd, name));
}
CALL(by_proc) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", OK(open("d/g", O_RDONLY)));
    OK(chmod(path, 0600));
}

#define ROW(name) {#name, name}
static const struct { const char *name; void (*call)(void); } ROWS[] = {
    ROW(open_written), ROW(open_not_written), ROW(open_emptied), ROW(open_made_only), ROW(open_read_only),
    ROW(open_failed), ROW(open64_written), ROW(openat_written), ROW(openat64_written), ROW(creat_written),
    ROW(creat64_written), ROW(open_2), ROW(open64_2), ROW(openat_2), ROW(openat64_2), ROW(by_handle),
    ROW(temporary), ROW(temporary64), ROW(temporary_dir), ROW(fopen_modes), ROW(fopen64_written),
    ROW(freopen_written), ROW(freopen_64), ROW(fdopen_written), ROW(fcloseall_then_exit), ROW(tmpfile_written),
    ROW(dup2_over), ROW(dup3_over), ROW(dup2_failed), ROW(dup2_of_itself), ROW(copies), ROW(close_range_all),
    ROW(close_range_later), ROW(closefrom_all), ROW(exit_open), ROW(exit_buffered), ROW(exit_at_once),
    ROW(exit_by_c), ROW(exit_quickly), ROW(main_thread_is_gone), ROW(closed_after_main_thread),
    ROW(cancelled_in_close), ROW(forked_writes), ROW(forked_oddly), ROW(vforked_runs), ROW(spawned_writes),
    ROW(spawnedp_writes), ROW(system_writes), ROW(popen_writes), ROW(exec_l), ROW(exec_lp), ROW(exec_le),
    ROW(exec_v), ROW(exec_vp), ROW(exec_ve), ROW(exec_vpe), ROW(exec_fd), ROW(exec_at), ROW(exec_passes_on),
    ROW(exec_failed), ROW(truncate_path), ROW(truncate_open), ROW(given_room), ROW(copied_by_kernel),
    ROW(sent_to), ROW(spliced_to), ROW(unseen_then_cut), ROW(unseen_then_written), ROW(closed_unseen),
    ROW(received), ROW(nameless_for_ever), ROW(nameless_then_named), ROW(nameless_named_empty),
    ROW(memory_unmapped), ROW(memory_in_parts), ROW(memory_until_exit), ROW(memory_until_exit_at_once),
    ROW(memory_until_exec), ROW(memory_synced), ROW(memory_moved), ROW(memory_covered), ROW(memory_private),
    ROW(names_made), ROW(names_not_made), ROW(names_removed), ROW(removed_by_c), ROW(names_changed),
    ROW(left_whiteout), ROW(came_and_went), ROW(linked_from_elsewhere), ROW(socket_named), ROW(path_forms),
    ROW(renamed_while_open), ROW(elsewhere_while_open), ROW(same_name_elsewhere), ROW(link_in_its_place),
    ROW(directory_renamed), ROW(removed_while_open), ROW(other_name_while_open), ROW(named_as_if_deleted),
    ROW(odd_names), ROW(too_deep), ROW(beside), ROW(modes), ROW(owners), ROW(times), ROW(extended), ROW(by_proc),
};

int main(int count, char **words) {
    for (unsigned at = 0; at < sizeof ROWS / sizeof *ROWS; at++) {
        if (count < 2) puts(ROWS[at].name);
        else if (strcmp(words[1], ROWS[at].name) == 0) return ROWS[at].call(), 0;
    }
    return count < 2 ? 0 : 2;
}
