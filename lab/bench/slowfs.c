/* slowfs: a read-only FUSE pass-through that behaves like a network file system: one stream is slow, many are fast.
 * It also injects the faults that such a file system has.
 *
 * Each read pays a latency and its share of two rate limits, one for its client thread (a "stream") and one for all
 * threads together. Each metadata request (lookup, getattr, open, readdir, readlink) pays a latency of its own.
 *
 *   gcc -O2 slowfs.c -o slowfs $(pkg-config --cflags --libs fuse3) -lpthread
 *   SLOW_ROOT=FOLDER slowfs -f -o ro,max_threads=256,max_idle_threads=256 MOUNTPOINT
 *   fusermount3 -u MOUNTPOINT
 *
 * Without max_threads libfuse serves 10 requests at a time and caps the streams by itself.
 *
 * Settings, from the environment. MB are 10^6 bytes; a NAME is a glob for the last part of a path, default *.
 *   SLOW_ROOT               the folder that is shown
 *   SLOW_STREAM_MB=25       MB/s a stream; 0: no cap
 *   SLOW_KEY=tid            a stream is a client thread (tid) or an open file (fh)
 *   SLOW_AGG_MB=800         MB/s of all streams; 0: no cap
 *   SLOW_LAT_US=2000        latency of a read request
 *   SLOW_META_US=1000       latency of a metadata request
 *   SLOW_RPC_MB=0           > 0: a read also takes its size / so many MB/s, however many run at once
 *   SLOW_LOG                a file that gets one line of request statistics at unmount
 * Model without stream caps: SLOW_STREAM_MB=0 SLOW_AGG_MB=0 SLOW_LAT_US=5000 SLOW_RPC_MB=250.
 *
 * Faults; all are off by default:
 *   SLOW_FAIL_TIMES=0       so many reads fail, then none; -1: every read
 *   SLOW_FAIL_NAME=*        ... of these files (opened past the page cache, whose read-ahead would swallow errors)
 *   SLOW_FAIL_AFTER_MB=0    ... once the mount has served so many MB
 *   SLOW_FAIL_ERRNO=5       ... with this error number (5: EIO)
 *   SLOW_SHORT_BYTES=0      > 0: a read returns at most so many bytes
 *   SLOW_SHORT_NAME=*       ... of these files (opened past the page cache, which takes a short read for an end)
 *   SLOW_STUCK_S=0          > 0: a read waits so many seconds; a large number is a hang
 *   SLOW_STUCK_NAME=*       ... of these files
 *   SLOW_STUCK_OFFSET=-1    >= 0: ... only one that holds this byte of the file
 *   SLOW_STUCK_TIMES=-1     ... only the first so many; -1: each
 *   SLOW_CHANGE_NAME        these files look changed: none unless this is set
 *   SLOW_CHANGE_AFTER_MB=0  ... once the mount has served so many MB
 *   SLOW_CHANGE_BYTES=0     ... by so many bytes of size; negative: shorter, and reads end there
 *   SLOW_CHANGE_MTIME_S=0   ... by so many seconds of mtime
 */
#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fuse.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SLOTS (1 << 16)
#define PROBES 32
#define PATH_BYTES 8192

/* Which reads a fault meets. */
struct rule {
  const char *name; /* glob, NULL: no file */
  long times;       /* left; < 0: no end */
  double after;     /* bytes served before it begins */
};

/* An open file. */
struct handle {
  int fd;
  int fails, is_short, sticks, changes; /* whether its name matches the rule */
};

static const char *root;
static double latency, meta_latency, stream_rate, all_rate, rpc_rate;
static int by_handle;
static struct rule failing, shortened, stuck, changed;
static int fail_errno;
static long short_bytes, stuck_offset, change_bytes, change_mtime;
static double stuck_seconds;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all below */
static struct { uintptr_t key; double next; } streams[SLOTS];
static double all_next, served;
static long requests;

/* ---- time */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void sleep_until(double when) {
  struct timespec t = {(time_t)when, (long)((when - (time_t)when) * 1e9)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0) == EINTR) {}
}

/* When a request of so many bytes may end under a rate limit. */
static double reserve(double *next, double t, size_t bytes, double rate) {
  double start = *next > t ? *next : t;
  return *next = start + bytes / rate;
}

/* The stream's own limit. A slot whose time has passed says no more than an empty one, and is given away. */
static double *stream_of(uintptr_t key, double t) {
  unsigned home = (unsigned)(key * 2654435761u) % SLOTS, free_slot = home, i;
  for (i = 0; i < PROBES; i++) {
    unsigned slot = (home + i) % SLOTS;
    if (streams[slot].key == key) return &streams[slot].next;
    if (streams[free_slot].next > t && streams[slot].next <= t) free_slot = slot;
  }
  streams[free_slot].key = key;
  streams[free_slot].next = t;
  return &streams[free_slot].next;
}

/* Waits for as long as a network file system would take for a read. */
static void pay(uintptr_t key, size_t bytes) {
  double t = now(), end = t, x;
  pthread_mutex_lock(&lock);
  served += bytes;
  requests++;
  if (stream_rate > 0 && (x = reserve(stream_of(key, t), t, bytes, stream_rate)) > end) end = x;
  if (all_rate > 0 && (x = reserve(&all_next, t, bytes, all_rate)) > end) end = x;
  pthread_mutex_unlock(&lock);
  sleep_until(end + latency + (rpc_rate > 0 ? bytes / rpc_rate : 0));
}

static const char *real(const char *path, char *out) {
  if (meta_latency > 0) sleep_until(now() + meta_latency);
  snprintf(out, PATH_BYTES, "%s%s", root, path);
  return out;
}

/* ---- faults */

static int matches(const struct rule *rule, const char *path) {
  return rule->name && !fnmatch(rule->name, strrchr(path, '/') + 1, 0);
}

/* Whether a rule strikes now; counts it. */
static int strikes(struct rule *rule) {
  int yes;
  pthread_mutex_lock(&lock);
  yes = rule->times && served >= rule->after;
  if (yes && rule->times > 0) rule->times--;
  pthread_mutex_unlock(&lock);
  return yes;
}

static off_t changed_size(off_t size) { return size + change_bytes > 0 ? size + change_bytes : 0; }

static void change(struct stat *st) {
  st->st_size = changed_size(st->st_size);
  st->st_mtime += change_mtime;
}

/* ---- file system */

static int slow_getattr(const char *path, struct stat *st, struct fuse_file_info *fi) {
  char out[PATH_BYTES];
  (void)fi;
  if (lstat(real(path, out), st)) return -errno;
  if (S_ISREG(st->st_mode) && matches(&changed, path) && strikes(&changed)) change(st);
  return 0;
}

static int slow_readlink(const char *path, char *target, size_t bytes) {
  char out[PATH_BYTES];
  ssize_t length = readlink(real(path, out), target, bytes - 1);
  if (length < 0) return -errno;
  target[length] = 0;
  return 0;
}

static int slow_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *fi,
                        enum fuse_readdir_flags flags) {
  char out[PATH_BYTES];
  struct dirent *entry;
  DIR *folder = opendir(real(path, out));
  (void)offset, (void)fi, (void)flags;
  if (!folder) return -errno;
  while ((entry = readdir(folder))) {
    struct stat st = {0};
    st.st_ino = entry->d_ino;
    st.st_mode = entry->d_type << 12;
    if (fill(buffer, entry->d_name, &st, 0, 0)) break;
  }
  closedir(folder);
  return 0;
}

static int slow_open(const char *path, struct fuse_file_info *fi) {
  char out[PATH_BYTES];
  struct handle *h = malloc(sizeof *h);
  if (!h) return -ENOMEM;
  if ((h->fd = open(real(path, out), O_RDONLY)) < 0) return free(h), -errno;
  h->fails = matches(&failing, path);
  h->is_short = matches(&shortened, path);
  h->sticks = matches(&stuck, path);
  h->changes = matches(&changed, path);
  fi->fh = (uintptr_t)h;
  fi->keep_cache = 1;
  fi->direct_io = h->is_short || h->fails;
  return 0;
}

static int slow_release(const char *path, struct fuse_file_info *fi) {
  struct handle *h = (struct handle *)(uintptr_t)fi->fh;
  (void)path;
  close(h->fd);
  free(h);
  return 0;
}

static int slow_read(const char *path, struct fuse_bufvec **out, size_t bytes, off_t offset,
                     struct fuse_file_info *fi) {
  struct handle *h = (struct handle *)(uintptr_t)fi->fh;
  struct fuse_bufvec *vector;
  struct stat st;
  (void)path;
  if (h->sticks && (stuck_offset < 0 || (offset <= stuck_offset && stuck_offset < offset + (off_t)bytes)) &&
      strikes(&stuck))
    sleep_until(now() + stuck_seconds);
  if (h->fails && strikes(&failing)) return -fail_errno;
  if (h->is_short && bytes > (size_t)short_bytes) bytes = short_bytes;
  if (h->changes && strikes(&changed) && !fstat(h->fd, &st)) {
    off_t left = changed_size(st.st_size) - offset;
    if (left < (off_t)bytes) bytes = left > 0 ? left : 0;
  }
  pay(by_handle ? (uintptr_t)h : (uintptr_t)fuse_get_context()->pid, bytes);
  if (!(vector = malloc(sizeof *vector))) return -ENOMEM;
  *vector = FUSE_BUFVEC_INIT(bytes);
  vector->buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
  vector->buf[0].fd = h->fd;
  vector->buf[0].pos = offset;
  *out = vector;
  return 0;
}

static int slow_statfs(const char *path, struct statvfs *st) {
  (void)path;
  return statvfs(root, st) ? -errno : 0;
}

static void *slow_init(struct fuse_conn_info *connection, struct fuse_config *config) {
  connection->max_background = connection->congestion_threshold = 512;
  connection->max_readahead = 16 << 20;
  connection->want |= connection->capable & (FUSE_CAP_ASYNC_DIO | FUSE_CAP_SPLICE_WRITE);
  config->kernel_cache = config->use_ino = 1;
  config->entry_timeout = 600;
  config->attr_timeout = changed.name ? 0 : 600;
  return 0;
}

static void slow_destroy(void *data) {
  const char *name = getenv("SLOW_LOG");
  FILE *file = name ? fopen(name, "a") : 0;
  (void)data;
  if (!file) return;
  fprintf(file, "requests %ld mean %.0f KiB total %.1f MiB\n", requests, requests ? served / requests / 1024 : 0,
          served / 1048576);
  fclose(file);
}

/* ---- settings */

static double number(const char *key, double otherwise) {
  const char *text = getenv(key);
  return text ? atof(text) : otherwise;
}

static const char *glob(const char *key) {
  const char *text = getenv(key);
  return text ? text : "*";
}

int main(int argc, char **argv) {
  static const struct fuse_operations operations = {
      .getattr = slow_getattr, .readlink = slow_readlink, .readdir = slow_readdir,   .open = slow_open,
      .release = slow_release, .read_buf = slow_read,     .statfs = slow_statfs,     .init = slow_init,
      .destroy = slow_destroy};
  const char *key = getenv("SLOW_KEY");
  if (!(root = getenv("SLOW_ROOT"))) return fputs("slowfs: set SLOW_ROOT to the folder to show\n", stderr), 2;
  by_handle = key && !strcmp(key, "fh");
  latency = number("SLOW_LAT_US", 2000) * 1e-6;
  meta_latency = number("SLOW_META_US", 1000) * 1e-6;
  stream_rate = number("SLOW_STREAM_MB", 25) * 1e6;
  all_rate = number("SLOW_AGG_MB", 800) * 1e6;
  rpc_rate = number("SLOW_RPC_MB", 0) * 1e6;
  if (number("SLOW_FAIL_TIMES", 0))
    failing = (struct rule){glob("SLOW_FAIL_NAME"), number("SLOW_FAIL_TIMES", 0),
                            number("SLOW_FAIL_AFTER_MB", 0) * 1e6};
  fail_errno = number("SLOW_FAIL_ERRNO", EIO);
  if ((short_bytes = number("SLOW_SHORT_BYTES", 0)) > 0) shortened = (struct rule){glob("SLOW_SHORT_NAME"), -1, 0};
  if ((stuck_seconds = number("SLOW_STUCK_S", 0)) > 0)
    stuck = (struct rule){glob("SLOW_STUCK_NAME"), number("SLOW_STUCK_TIMES", -1), 0};
  stuck_offset = number("SLOW_STUCK_OFFSET", -1);
  changed = (struct rule){getenv("SLOW_CHANGE_NAME"), -1, number("SLOW_CHANGE_AFTER_MB", 0) * 1e6};
  change_bytes = number("SLOW_CHANGE_BYTES", 0);
  change_mtime = number("SLOW_CHANGE_MTIME_S", 0);
  return fuse_main(argc, argv, &operations, 0);
}
