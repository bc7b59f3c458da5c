/* Preloaded into the process under test: lets the n-th file operation below one folder fail, fall short, or be the
 * moment of a SIGKILL, or of the folder's disappearance. Nothing happens before `fault_arm`. Counting is per kind of operation.
 *
 * Only calls on paths below the folder count, and on descriptors that were opened there; so neither Python's own
 * files nor the caches of libraries are touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { WRITE, FSYNC, RENAME, LINK, MKDIR, OPEN, MAP, TRUNCATE, UNLINK, READ, KINDS };
enum mode { COUNT, FAIL, SHORT, KILL_BEFORE, KILL_AFTER, VANISH };

#define MAX_FD 4096
static char tracked[MAX_FD];
static char folder[PATH_MAX];
static size_t folder_length;
static int armed, fault_kind = -1, fault_mode, fault_errno, starved;
static long fault_at, counts[KINDS];

void fault_arm(const char *path, int kind, long at, int mode, int error) {
    snprintf(folder, sizeof folder, "%s", path);
    folder_length = strlen(folder);
    fault_kind = kind;
    fault_at = at;
    fault_mode = mode;
    fault_errno = error;
    starved = 0;
    memset(counts, 0, sizeof counts);
    memset(tracked, 0, sizeof tracked);
    armed = 1;
}

long fault_count(int kind) { return counts[kind]; }

static int below(const char *path) {
    return armed && path && strncmp(path, folder, folder_length) == 0;
}

static int ours(int fd) { return armed && fd >= 0 && fd < MAX_FD && tracked[fd]; }

/* Whether this call is the one; kills at once where that is the mode. */
static int strikes(int kind) {
    counts[kind]++;
    if (fault_mode == COUNT || kind != fault_kind || counts[kind] != fault_at) return 0;
    if (fault_mode == KILL_BEFORE) kill(getpid(), SIGKILL);
    if (fault_mode == VANISH) {
        char gone[PATH_MAX + 8];
        snprintf(gone, sizeof gone, "%s.gone", folder);
        syscall(SYS_renameat2, AT_FDCWD, folder, AT_FDCWD, gone, 0);
        return 0;
    }
    return 1;
}

static void after(int struck) {
    if (struck && fault_mode == KILL_AFTER) kill(getpid(), SIGKILL);
}

static int fails(int struck) {
    if (struck && fault_mode == FAIL) {
        errno = fault_errno;
        return 1;
    }
    return 0;
}

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int opened(int fd, const char *path) {
    if (fd >= 0 && fd < MAX_FD) tracked[fd] = (char)below(path);
    return fd;
}

#define OPEN_BODY(call) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list list; \
        va_start(list, flags); \
        mode = va_arg(list, mode_t); \
        va_end(list); \
    } \
    int struck = below(path) && (flags & (O_CREAT | O_WRONLY | O_RDWR)) ? strikes(OPEN) : 0; \
    if (fails(struck)) return -1; \
    int fd = opened(call, path); \
    after(struck); \
    return fd;

int open(const char *path, int flags, ...) { NEXT(open); OPEN_BODY(next(path, flags, mode)) }
int open64(const char *path, int flags, ...) { NEXT(open64); OPEN_BODY(next(path, flags, mode)) }
int openat(int at, const char *path, int flags, ...) { NEXT(openat); OPEN_BODY(next(at, path, flags, mode)) }
int openat64(int at, const char *path, int flags, ...) { NEXT(openat64); OPEN_BODY(next(at, path, flags, mode)) }

int close(int fd) {
    NEXT(close);
    if (fd >= 0 && fd < MAX_FD) tracked[fd] = 0;
    return next(fd);
}

#define WRITE_BODY(call, half) \
    if (!ours(fd)) return call; \
    if (starved) { starved = 0; errno = fault_errno; return -1; } \
    int struck = strikes(WRITE); \
    if (fails(struck)) return -1; \
    if (struck && fault_mode == SHORT && size > 1) { starved = 1; return half; } \
    ssize_t written = call; \
    after(struck); \
    return written;

ssize_t write(int fd, const void *data, size_t size) {
    NEXT(write);
    WRITE_BODY(next(fd, data, size), next(fd, data, size / 2))
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    NEXT(pwrite);
    WRITE_BODY(next(fd, data, size, at), next(fd, data, size / 2, at))
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    NEXT(pwrite64);
    WRITE_BODY(next(fd, data, size, at), next(fd, data, size / 2, at))
}

#define ON_FD(kind, call) \
    if (!ours(fd)) return call; \
    int struck = strikes(kind); \
    if (fails(struck)) return -1; \
    int result = call; \
    after(struck); \
    return result;

int fsync(int fd) { NEXT(fsync); ON_FD(FSYNC, next(fd)) }
int fdatasync(int fd) { NEXT(fdatasync); ON_FD(FSYNC, next(fd)) }
int ftruncate(int fd, off_t size) { NEXT(ftruncate); ON_FD(TRUNCATE, next(fd, size)) }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); ON_FD(TRUNCATE, next(fd, size)) }
int posix_fallocate(int fd, off_t at, off_t size) {
    NEXT(posix_fallocate);
    if (!ours(fd)) return next(fd, at, size);
    int struck = strikes(TRUNCATE);
    if (struck && fault_mode == FAIL) return fault_errno;
    int result = next(fd, at, size);
    after(struck);
    return result;
}

#define ON_PATH(kind, where, call) \
    if (!below(where)) return call; \
    int struck = strikes(kind); \
    if (fails(struck)) return -1; \
    int result = call; \
    after(struck); \
    return result;

int rename(const char *from, const char *to) { NEXT(rename); ON_PATH(RENAME, to, next(from, to)) }
int renameat(int a, const char *from, int b, const char *to) { NEXT(renameat); ON_PATH(RENAME, to, next(a, from, b, to)) }
int link(const char *from, const char *to) { NEXT(link); ON_PATH(LINK, to, next(from, to)) }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    NEXT(linkat);
    ON_PATH(LINK, to, next(a, from, b, to, flags))
}
int symlink(const char *from, const char *to) { NEXT(symlink); ON_PATH(LINK, to, next(from, to)) }
int mkdir(const char *path, mode_t mode) { NEXT(mkdir); ON_PATH(MKDIR, path, next(path, mode)) }
int mkdirat(int at, const char *path, mode_t mode) { NEXT(mkdirat); ON_PATH(MKDIR, path, next(at, path, mode)) }
int unlink(const char *path) { NEXT(unlink); ON_PATH(UNLINK, path, next(path)) }
int unlinkat(int at, const char *path, int flags) { NEXT(unlinkat); ON_PATH(UNLINK, path, next(at, path, flags)) }

#define MAP_BODY(call) \
    if (!ours(fd)) return call; \
    int struck = strikes(MAP); \
    if (struck && fault_mode == FAIL) { errno = fault_errno; return MAP_FAILED; } \
    void *place = call; \
    after(struck); \
    return place;

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    NEXT(mmap);
    MAP_BODY(next(at, size, protection, flags, fd, offset))
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    NEXT(mmap64);
    MAP_BODY(next(at, size, protection, flags, fd, offset))
}

#define READ_BODY(call) \
    if (!ours(fd)) return call; \
    int struck = strikes(READ); \
    if (fails(struck)) return -1; \
    ssize_t found = call; \
    after(struck); \
    return found;

ssize_t read(int fd, void *data, size_t size) { NEXT(read); READ_BODY(next(fd, data, size)) }
ssize_t pread(int fd, void *data, size_t size, off_t at) { NEXT(pread); READ_BODY(next(fd, data, size, at)) }
ssize_t pread64(int fd, void *data, size_t size, off64_t at) { NEXT(pread64); READ_BODY(next(fd, data, size, at)) }
