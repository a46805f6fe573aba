/* faulty: a library for LD_PRELOAD that lets chosen file operations fail, stall, lie or find a full disk.
 *
 * build:  cc -shared -fPIC -O2 -o faulty.so faulty.c -ldl -lpthread      (Linux, glibc, 64 bits)
 * use:    LD_PRELOAD=.../faulty.so FAULTY_PREFIX=/source FAULTY_ERROR=EIO FAULTY_TIMES=2 python3 ...
 *
 * What is hit on the source's side: calls on paths below PREFIX whose rest, after the slash, matches NAME.
 *   FAULTY_PREFIX=folder   without it nothing on the source's side is touched
 *   FAULTY_NAME=pattern    fnmatch, a * also matches slashes; default *
 *   FAULTY_CALLS=a,b,...   of open, stat, fstat, list (opendir), readdir, read (each form of it); default read
 *   FAULTY_BEYOND=n        of reads only those that would end beyond byte n of the file
 *   FAULTY_SKIP=n          the first n matching calls pass and count for nothing
 *   FAULTY_TIMES=n         an error, short read, flip, stuck or slow call happens at most n times; default: for ever
 *   FAULTY_STREAMS=n       only the first n threads that make a matching call are hit
 * What happens to these calls; several may be set:
 *   FAULTY_ERROR=name      EIO, ESTALE, ETIMEDOUT, ENOTCONN, ESHUTDOWN, EACCES, EINVAL or a number
 *   FAULTY_SLEEP=seconds   each sleeps first; a signal does not end it, as in a read of a dead server
 *   FAULTY_STUCK=offset    the sleep is only for reads that cover this byte
 *   FAULTY_RATE=MiB/s      reads of all threads together are slowed down to this
 *   FAULTY_SHORT=n         a read gives at most n bytes, and rubbish in the rest of the buffer
 *   FAULTY_FLIP=offset     reads that cover this byte give another value for it
 *   FAULTY_CHANGE=how@k    before the k-th read: shrink (to half), grow, touch (mtime) the file, really and once
 *   FAULTY_KILL=k          SIGKILL to the process at the k-th matching call, before it is done
 *   FAULTY_NO_DIRECT=how   O_DIRECT on the source: `open` is refused, or the first read (`read`)
 *   FAULTY_NO_DIRECT_ERROR=name with what these fail; default EINVAL
 * The destination's side: writes and allocations of regular files below DESTINATION that match DESTINATION_NAME.
 *   FAULTY_DESTINATION=folder, FAULTY_DESTINATION_NAME=pattern
 *   FAULTY_FULL=n          writes fail once n bytes were written
 *   FAULTY_RESERVED=n      allocations fail once n bytes were allocated
 *   FAULTY_FULL_ERROR=name with what these fail; default ENOSPC
 *   FAULTY_SHORT_WRITE=n   a write takes at most n bytes
 * What it tells:
 *   FAULTY_LOG=file        a line for each matching call: what happened, call, thread, offset, bytes asked, path
 *   FAULTY_READY=fd        one byte is written there at the first matching call, before it sleeps
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

enum { OPEN = 1, STAT = 2, FSTAT = 4, LIST = 8, READDIR = 16, READ = 32 };
static const struct { const char *name; int bit; } kinds[] = {
    {"open", OPEN}, {"stat", STAT}, {"fstat", FSTAT}, {"list", LIST}, {"readdir", READDIR}, {"read", READ}};
static const struct { const char *name; int number; } errors[] = {
    {"EIO", EIO}, {"ESTALE", ESTALE}, {"ETIMEDOUT", ETIMEDOUT}, {"ENOTCONN", ENOTCONN}, {"ESHUTDOWN", ESHUTDOWN},
    {"EACCES", EACCES}, {"EINVAL", EINVAL}, {"EOPNOTSUPP", EOPNOTSUPP},
    {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}};

static const char *prefix, *pattern, *dest, *dest_pattern, *change, *no_direct, *log_path;
static int calls, fail, full_error, no_direct_error, ready, changed;
static long beyond, skip, times, streams, stuck, shortest, flip, change_at, kill_at, full, reserved, short_write;
static double nap, rate, free_at;
static long seen, hits, written, allocated, nthreads;
static pid_t threads[4096];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static long number(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value ? atol(value) : otherwise;
}

static int error_number(const char *name, int otherwise) {
  const char *value = getenv(name);
  if (!value) return otherwise;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (!strcmp(value, errors[i].name)) return errors[i].number;
  return atoi(value);
}

__attribute__((constructor)) static void settings(void) {
  const char *value = getenv("FAULTY_CALLS");
  prefix = getenv("FAULTY_PREFIX");
  pattern = getenv("FAULTY_NAME") ? getenv("FAULTY_NAME") : "*";
  dest = getenv("FAULTY_DESTINATION");
  dest_pattern = getenv("FAULTY_DESTINATION_NAME") ? getenv("FAULTY_DESTINATION_NAME") : "*";
  no_direct = getenv("FAULTY_NO_DIRECT");
  log_path = getenv("FAULTY_LOG");
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const char *at = value ? value : "read";
    size_t length = strlen(kinds[i].name);
    for (; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
      if (!strncmp(at, kinds[i].name, length) && (at[length] == ',' || !at[length])) calls |= kinds[i].bit;
  }
  fail = error_number("FAULTY_ERROR", 0);
  full_error = error_number("FAULTY_FULL_ERROR", ENOSPC);
  no_direct_error = error_number("FAULTY_NO_DIRECT_ERROR", EINVAL);
  ready = (int)number("FAULTY_READY", -1);
  beyond = number("FAULTY_BEYOND", 0);
  skip = number("FAULTY_SKIP", 0);
  times = number("FAULTY_TIMES", LONG_MAX);
  streams = number("FAULTY_STREAMS", LONG_MAX);
  stuck = number("FAULTY_STUCK", -1);
  shortest = number("FAULTY_SHORT", 0);
  flip = number("FAULTY_FLIP", -1);
  kill_at = number("FAULTY_KILL", 0);
  full = number("FAULTY_FULL", -1);
  reserved = number("FAULTY_RESERVED", -1);
  short_write = number("FAULTY_SHORT_WRITE", 0);
  nap = getenv("FAULTY_SLEEP") ? atof(getenv("FAULTY_SLEEP")) : 0;
  rate = getenv("FAULTY_RATE") ? atof(getenv("FAULTY_RATE")) * 1048576 : 0;
  change = getenv("FAULTY_CHANGE");
  if (change) change_at = strchr(change, '@') ? atol(strchr(change, '@') + 1) : 1;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void until(double end) {
  struct timespec t = {(time_t)end, (long)((end - (double)(time_t)end) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

/* The path of an open file, without the mark of a deleted one; empty if it has none. */
static char *path_of(int fd, char *out) {
  char link[40];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
  out[length > 0 ? length : 0] = 0;
  return out;
}

static char *path_at(int folder, const char *path, char *out) {
  if (*path == '/') {
    snprintf(out, PATH_MAX, "%s", path);
    return out;
  }
  if (folder == AT_FDCWD) {
    if (!getcwd(out, PATH_MAX)) *out = 0;
  } else
    path_of(folder, out);
  size_t length = strlen(out);
  if (*path) snprintf(out + length, PATH_MAX - length, "/%s", path);
  return out;
}

static int below(const char *folder, const char *match, const char *path) {
  size_t length = folder ? strlen(folder) : 0;
  if (!length || strncmp(path, folder, length) || (path[length] && path[length] != '/')) return 0;
  return !fnmatch(match, path + length + (path[length] == '/'), 0);
}

/* One line a call; one write a line, so that lines of threads do not mix. */
static void tell(const char *what, const char *call, long offset, long bytes, const char *path) {
  char line[PATH_MAX + 200];
  if (!log_path) return;
  int length = snprintf(line, sizeof line, "%s %s %ld %ld %ld ", what, call, syscall(SYS_gettid), offset, bytes);
  for (; *path && length < (int)sizeof line - 2; path++) line[length++] = *path == '\n' ? '?' : *path;
  line[length++] = '\n';
  int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  syscall(SYS_write, fd, line, length);
  syscall(SYS_close, fd);
}

static void change_file(const char *path) {
  struct stat was;
  struct timespec other[2] = {{1, 0}, {1, 0}};
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || syscall(SYS_newfstatat, fd, "", &was, AT_EMPTY_PATH)) abort();
  if (!strncmp(change, "shrink", 6) && syscall(SYS_ftruncate, fd, was.st_size / 2)) abort();
  if (!strncmp(change, "grow", 4) && syscall(SYS_ftruncate, fd, was.st_size + 1000)) abort();
  if (!strncmp(change, "touch", 5) && syscall(SYS_utimensat, fd, NULL, other, 0)) abort();
  syscall(SYS_close, fd);
}

static int is_hit_thread(void) {
  pid_t me = (pid_t)syscall(SYS_gettid);
  for (long i = 0; i < nthreads; i++)
    if (threads[i] == me) return i < streams;
  if (nthreads < (long)(sizeof threads / sizeof *threads)) threads[nthreads] = me;
  return nthreads++ < streams;
}

typedef struct { int error, shorten, flip; } Fault;

/* Decide what happens to a call, and let all happen that comes before it. */
static Fault meet(int kind, const char *call, const char *path, long offset, long bytes) {
  Fault fault = {0, 0, 0};
  double wake = 0;
  const char *what = "pass";
  if (!(calls & kind) || (kind == READ && offset + bytes <= beyond) || !below(prefix, pattern, path)) return fault;
  pthread_mutex_lock(&mutex);
  int matches = is_hit_thread() && ++seen > skip;
  if (matches && change && !changed && seen - skip >= change_at) {
    changed = 1;
    what = "change";
    change_file(path);
  }
  if (matches && kill_at && seen - skip == kill_at) {
    tell("kill", call, offset, bytes, path);
    syscall(SYS_kill, getpid(), SIGKILL);
  }
  if (matches && hits < times) {
    int covers = kind == READ && stuck >= offset && stuck < offset + bytes;
    if (nap > 0 && (stuck < 0 || covers)) wake = now() + nap, what = "sleep";
    if (shortest && kind == READ && bytes > shortest) fault.shorten = 1, what = "short";
    if (kind == READ && flip >= offset && flip < offset + bytes) fault.flip = 1, what = "flip";
    if (fail) fault.error = fail, what = "error";
    hits += wake > 0 || fault.shorten || fault.flip || fault.error;
  }
  if (matches && rate > 0 && kind == READ && !fault.error) {
    double begin = free_at > now() ? free_at : now();
    free_at = begin + (double)bytes / rate;
    if (free_at > wake) wake = free_at;
  }
  if (matches && ready >= 0 && (wake > 0 || fault.error || fault.shorten || fault.flip || changed)) {
    syscall(SYS_write, ready, "!", 1);
    ready = -1;
  }
  tell(matches ? what : "pass", call, offset, bytes, path);
  pthread_mutex_unlock(&mutex);
  if (wake > 0) until(wake);
  return fault;
}

/* What becomes of the bytes that a read gave. */
static ssize_t lie(Fault fault, const struct iovec *parts, int count, long offset, ssize_t got) {
  ssize_t give = fault.shorten && got > shortest ? shortest : got;
  long at = offset;
  for (int i = 0; i < count && at < offset + got; at += (long)parts[i].iov_len, i++) {
    unsigned char *bytes = parts[i].iov_base;
    if (fault.flip && flip >= at && flip < at + (long)parts[i].iov_len && flip < offset + got) bytes[flip - at] ^= 0x55;
    for (long j = at; j < at + (long)parts[i].iov_len && j < offset + got; j++)
      if (j >= offset + give) bytes[j - at] = 0xaa;
  }
  return give;
}

static long sum(const struct iovec *parts, int count) {
  long total = 0;
  for (int i = 0; i < count; i++) total += (long)parts[i].iov_len;
  return total;
}

static int refused_direct(int fd, const char *path) {
  return no_direct && !strcmp(no_direct, "read") && below(prefix, pattern, path) && (fcntl(fd, F_GETFL) & O_DIRECT);
}

#define READING(call, parts, count, offset, real_call) READING_THEN(call, parts, count, offset, real_call, )
#define READING_THEN(call, parts, count, offset, real_call, then) \
  do { \
    char path[PATH_MAX]; \
    long at = (offset), asked = sum(parts, count); \
    Fault fault = meet(READ, call, path_of(fd, path), at, asked); \
    if (!fault.error && refused_direct(fd, path)) fault.error = no_direct_error; \
    if (fault.error) return errno = fault.error, -1; \
    ssize_t got = real_call; \
    if (got > 0 && (fault.shorten || fault.flip)) { \
      got = lie(fault, parts, count, at, got); \
      then \
    } \
    return got; \
  } while (0)
#define GO_BACK syscall(SYS_lseek, fd, at + got, SEEK_SET);

EXPORT ssize_t read(int fd, void *buffer, size_t bytes) {
  REAL(ssize_t, "read", int, void *, size_t);
  struct iovec part = {buffer, bytes};
  if (!prefix) return real(fd, buffer, bytes);
  READING_THEN("read", &part, 1, syscall(SYS_lseek, fd, 0L, SEEK_CUR), real(fd, buffer, bytes), GO_BACK);
}

EXPORT ssize_t readv(int fd, const struct iovec *parts, int count) {
  REAL(ssize_t, "readv", int, const struct iovec *, int);
  READING_THEN("readv", parts, count, syscall(SYS_lseek, fd, 0L, SEEK_CUR), real(fd, parts, count), GO_BACK);
}

#define PREAD(name) \
  EXPORT ssize_t name(int fd, void *buffer, size_t bytes, off_t offset) { \
    REAL(ssize_t, #name, int, void *, size_t, off_t); \
    struct iovec part = {buffer, bytes}; \
    READING(#name, &part, 1, offset, real(fd, buffer, bytes, offset)); \
  }
PREAD(pread)
PREAD(pread64)

#define PREADV(name) \
  EXPORT ssize_t name(int fd, const struct iovec *parts, int count, off_t offset) { \
    REAL(ssize_t, #name, int, const struct iovec *, int, off_t); \
    READING(#name, parts, count, offset, real(fd, parts, count, offset)); \
  }
PREADV(preadv)
PREADV(preadv64)

#define PREADV2(name) \
  EXPORT ssize_t name(int fd, const struct iovec *parts, int count, off_t offset, int flags) { \
    REAL(ssize_t, #name, int, const struct iovec *, int, off_t, int); \
    READING(#name, parts, count, offset, real(fd, parts, count, offset, flags)); \
  }
PREADV2(preadv2)
PREADV2(preadv64v2)

static int opening(int folder, const char *path, int flags) {
  char whole[PATH_MAX];
  if (!prefix) return 0;
  path_at(folder, path, whole);
  if (no_direct && !strcmp(no_direct, "open") && (flags & O_DIRECT) && below(prefix, pattern, whole)) return no_direct_error;
  return meet(OPEN, "open", whole, 0, 0).error;
}

#define MODE \
  mode_t mode = 0; \
  if (flags & (O_CREAT | __O_TMPFILE)) { \
    va_list more; \
    va_start(more, flags); \
    mode = va_arg(more, mode_t); \
    va_end(more); \
  }
#define OPENS(name) \
  EXPORT int name(const char *path, int flags, ...) { \
    REAL(int, #name, const char *, int, ...); \
    MODE int error = opening(AT_FDCWD, path, flags); \
    return error ? errno = error, -1 : real(path, flags, mode); \
  }
OPENS(open)
OPENS(open64)

#define OPENATS(name) \
  EXPORT int name(int folder, const char *path, int flags, ...) { \
    REAL(int, #name, int, const char *, int, ...); \
    MODE int error = opening(folder, path, flags); \
    return error ? errno = error, -1 : real(folder, path, flags, mode); \
  }
OPENATS(openat)
OPENATS(openat64)

static int looking(int folder, const char *path) {
  char whole[PATH_MAX];
  return prefix ? meet(STAT, "stat", path_at(folder, path, whole), 0, 0).error : 0;
}

static int looking_at(int fd) {
  char whole[PATH_MAX];
  return prefix ? meet(FSTAT, "fstat", path_of(fd, whole), 0, 0).error : 0;
}

#define STATS(name, type) \
  EXPORT int name(const char *path, struct type *out) { \
    REAL(int, #name, const char *, struct type *); \
    int error = looking(AT_FDCWD, path); \
    return error ? errno = error, -1 : real(path, out); \
  }
STATS(stat, stat)
STATS(lstat, stat)
STATS(stat64, stat64)
STATS(lstat64, stat64)

#define FSTATS(name, type) \
  EXPORT int name(int fd, struct type *out) { \
    REAL(int, #name, int, struct type *); \
    int error = looking_at(fd); \
    return error ? errno = error, -1 : real(fd, out); \
  }
FSTATS(fstat, stat)
FSTATS(fstat64, stat64)

#define FSTATATS(name, type) \
  EXPORT int name(int folder, const char *path, struct type *out, int flags) { \
    REAL(int, #name, int, const char *, struct type *, int); \
    int error = *path ? looking(folder, path) : looking_at(folder); \
    return error ? errno = error, -1 : real(folder, path, out, flags); \
  }
FSTATATS(fstatat, stat)
FSTATATS(fstatat64, stat64)

/* What programs built for a glibc before 2.33 call instead. */
#define OLD_STATS(name) \
  EXPORT int name(int version, const char *path, void *out) { \
    REAL(int, #name, int, const char *, void *); \
    int error = looking(AT_FDCWD, path); \
    return error ? errno = error, -1 : real(version, path, out); \
  }
OLD_STATS(__xstat)
OLD_STATS(__lxstat)
OLD_STATS(__xstat64)
OLD_STATS(__lxstat64)

#define OLD_FSTATS(name) \
  EXPORT int name(int version, int fd, void *out) { \
    REAL(int, #name, int, int, void *); \
    int error = looking_at(fd); \
    return error ? errno = error, -1 : real(version, fd, out); \
  }
OLD_FSTATS(__fxstat)
OLD_FSTATS(__fxstat64)

EXPORT int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict out) {
  REAL(int, "statx", int, const char *, int, unsigned, struct statx *);
  int error = *path ? looking(folder, path) : looking_at(folder);
  return error ? errno = error, -1 : real(folder, path, flags, mask, out);
}

EXPORT DIR *opendir(const char *path) {
  REAL(DIR *, "opendir", const char *);
  char whole[PATH_MAX];
  int error = prefix ? meet(LIST, "list", path_at(AT_FDCWD, path, whole), 0, 0).error : 0;
  return error ? errno = error, NULL : real(path);
}

EXPORT DIR *fdopendir(int fd) {
  REAL(DIR *, "fdopendir", int);
  char whole[PATH_MAX];
  int error = prefix ? meet(LIST, "list", path_of(fd, whole), 0, 0).error : 0;
  return error ? errno = error, NULL : real(fd);
}

#define READDIRS(name, type) \
  EXPORT struct type *name(DIR *folder) { \
    REAL(struct type *, #name, DIR *); \
    char whole[PATH_MAX]; \
    int error = prefix ? meet(READDIR, "readdir", path_of(dirfd(folder), whole), 0, 0).error : 0; \
    return error ? errno = error, NULL : real(folder); \
  }
READDIRS(readdir, dirent)
READDIRS(readdir64, dirent64)

/* How many of the bytes a write may take; -1 with errno set for none. */
static ssize_t allowed(const char *call, int fd, long offset, size_t bytes) {
  char path[PATH_MAX];
  struct stat status;
  if (!dest || !below(dest, dest_pattern, path_of(fd, path))) return (ssize_t)bytes;
  if (syscall(SYS_newfstatat, fd, "", &status, AT_EMPTY_PATH) || !S_ISREG(status.st_mode)) return (ssize_t)bytes;
  pthread_mutex_lock(&mutex);
  ssize_t take = short_write && bytes > (size_t)short_write ? short_write : (ssize_t)bytes;
  if (full >= 0 && written + take > full) take = -1;
  else written += take;
  tell(take < 0 ? "full" : "write", call, offset, (long)bytes, path);
  pthread_mutex_unlock(&mutex);
  if (take < 0) errno = full_error;
  return take;
}

EXPORT ssize_t write(int fd, const void *buffer, size_t bytes) {
  REAL(ssize_t, "write", int, const void *, size_t);
  ssize_t take = dest ? allowed("write", fd, 0, bytes) : (ssize_t)bytes;
  return take < 0 ? -1 : real(fd, buffer, (size_t)take);
}

#define PWRITE(name) \
  EXPORT ssize_t name(int fd, const void *buffer, size_t bytes, off_t offset) { \
    REAL(ssize_t, #name, int, const void *, size_t, off_t); \
    ssize_t take = allowed(#name, fd, offset, bytes); \
    return take < 0 ? -1 : real(fd, buffer, (size_t)take, offset); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

/* A vectored write is cut to its first part where it may not take all. */
static ssize_t allowed_vector(const char *call, int fd, const struct iovec *parts, int *count, struct iovec *first,
                              long offset) {
  long bytes = sum(parts, *count);
  ssize_t take = allowed(call, fd, offset, (size_t)bytes);
  if (take < 0 || take == bytes) return take;
  *first = parts[0];
  if ((ssize_t)first->iov_len > take) first->iov_len = (size_t)take;
  *count = 1;
  return take;
}

#define PWRITEV(name) \
  EXPORT ssize_t name(int fd, const struct iovec *parts, int count, off_t offset, int flags) { \
    REAL(ssize_t, #name, int, const struct iovec *, int, off_t, int); \
    struct iovec first; \
    long bytes = sum(parts, count); \
    ssize_t take = allowed_vector(#name, fd, parts, &count, &first, offset); \
    return take < 0 ? -1 : real(fd, take < bytes ? &first : parts, count, offset, flags); \
  }
PWRITEV(pwritev2)
PWRITEV(pwritev64v2)

#define FALLOCATE(name) \
  EXPORT int name(int fd, int mode, off_t offset, off_t bytes) { \
    REAL(int, #name, int, int, off_t, off_t); \
    char path[PATH_MAX]; \
    if (reserved >= 0 && below(dest, dest_pattern, path_of(fd, path))) { \
      pthread_mutex_lock(&mutex); \
      int fits = allocated + bytes <= reserved; \
      if (fits) allocated += bytes; \
      tell(fits ? "write" : "full", #name, offset, bytes, path); \
      pthread_mutex_unlock(&mutex); \
      if (!fits) { \
        errno = full_error; \
        return -1; \
      } \
    } \
    return real(fd, mode, offset, bytes); \
  }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)
