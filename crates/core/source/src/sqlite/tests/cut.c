/* Kills its program at the nth system call that changes a file, in the middle of it: for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1; /* calls to come; -1: never */
static int at_unlink;

void cut_after(long calls) { left = calls; }
void cut_at_unlink(void) { at_unlink = 1; }

static int is_cut(void) { return left >= 0 && left-- == 0; }

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define PWRITE(name, offset_type)                                        \
    ssize_t name(int fd, const void *bytes, size_t len, offset_type at) { \
        if (is_cut()) {                                                  \
            REAL(name)(fd, bytes, len / 2, at);                          \
            die();                                                       \
        }                                                                \
        return REAL(name)(fd, bytes, len, at);                           \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *bytes, size_t len) {
    if (fd > 2 && is_cut()) {
        REAL(write)(fd, bytes, len / 2);
        die();
    }
    return REAL(write)(fd, bytes, len);
}

#define BEFORE(name, parameters, arguments) \
    int name parameters {                   \
        if (is_cut())                       \
            die();                          \
        return REAL(name) arguments;        \
    }
BEFORE(ftruncate, (int fd, off_t len), (fd, len))
BEFORE(ftruncate64, (int fd, off64_t len), (fd, len))
BEFORE(fsync, (int fd), (fd))
BEFORE(fdatasync, (int fd), (fd))

int unlink(const char *path) {
    /* The super-journal's end is the commit: its name ends otherwise than a journal's. */
    if (is_cut() || (at_unlink && strstr(path, "-mj")))
        die();
    return REAL(unlink)(path);
}
