/* file.h -- the one file interface: positioned reads, and files that are written whole or not at all.
 *
 * Nothing is mapped: a file cut short or overwritten by someone else is a read error and not a signal.  Every call goes
 * through a table that tests replace.  A file may be read from several threads at once; a writer belongs to one. */
#ifndef RG_BASE_FILE_H
#define RG_BASE_FILE_H

#include "base/error.h"

typedef struct rg_file rg_file;

/* Regular files only (no device, FIFO or directory). */
rg_file *rg_file_open(const char *path, rg_error *err);
/* From now on, reads whose place, size and address are multiples of RG_DIRECT go past the system's cache, where the
 * file system can do that.  It stays the file that was opened, whatever its path names by now. */
enum { RG_DIRECT = 4096 };
void rg_file_go_direct(rg_file *f);
/* Both. */
rg_file *rg_file_open_direct(const char *path, rg_error *err);
void rg_file_close(rg_file *f); /* NULL is fine */
uint64_t rg_file_size(const rg_file *f);
uint64_t rg_file_time_ns(const rg_file *f); /* of its last change, since 1970, when it was opened */
const char *rg_file_path(const rg_file *f);

/* Exactly n bytes at offset, or false. */
bool rg_file_read(const rg_file *f, uint64_t offset, void *to, size_t n, rg_error *err) RG_MUST_CHECK;

/* The whole file, at most cap bytes, followed by a NUL not counted in *n.  rg_free it. */
char *rg_file_slurp(const char *path, size_t cap, size_t *n, rg_error *err);

typedef enum rg_path_kind { RG_PATH_NONE, RG_PATH_FILE, RG_PATH_DIR, RG_PATH_OTHER } rg_path_kind;
rg_path_kind rg_path_look(const char *path);

/* The path from the root on, without links, of something that exists.  rg_free it. */
char *rg_path_full(const char *path, rg_error *err);

/* "dir/name" into out[room]; false if it does not fit or name would leave dir ("..", absolute, NUL). */
bool rg_path_join(char *out, size_t room, const char *dir, const char *name);

/* Make a directory if there is none; its parent must exist. */
bool rg_dir_make(const char *path, rg_error *err);

/* Call each with the name of everything in a directory but "." and "..", in no order, until it returns false. */
bool rg_dir_list(const char *path, bool (*each)(void *arg, const char *name), void *arg, rg_error *err) RG_MUST_CHECK;

/* Remove a file, or an empty directory; false if that could not be done. */
bool rg_path_remove(const char *path);

/* Size of a regular file, and the time of its last change in nanoseconds since 1970.  False: there is none. */
bool rg_path_facts(const char *path, uint64_t *bytes, uint64_t *time_ns);
/* Set the time of a file's last change; false if that could not be done.  Not every file system keeps nanoseconds. */
bool rg_path_touch(const char *path, uint64_t time_ns);

/* Written beside path under a temporary name; commit syncs it, renames it and syncs the directory; abort leaves no
 * trace.  All of these free the writer. */
typedef struct rg_writer rg_writer;

rg_writer *rg_writer_open(const char *path, rg_error *err);
bool rg_writer_write(rg_writer *w, const void *p, size_t n, rg_error *err) RG_MUST_CHECK;
uint64_t rg_writer_tell(const rg_writer *w);
bool rg_writer_commit(rg_writer *w, rg_error *err) RG_MUST_CHECK;
/* The same without syncing, for files whose readers check every byte: the file is whole whatever happens to the
 * process, but after a crash of the machine its name may stand for anything. */
bool rg_writer_commit_unsynced(rg_writer *w, rg_error *err) RG_MUST_CHECK;
void rg_writer_abort(rg_writer *w); /* NULL is fine */

/* Write a file of n bytes in this way, whole or not at all: at path, or by its name in a directory that is there. */
bool rg_file_put(const char *path, const void *data, size_t n, rg_error *err) RG_MUST_CHECK;
bool rg_file_put_in(const char *dir, const char *name, const void *data, size_t n, rg_error *err) RG_MUST_CHECK;

/* A file that grows at its end, and what was added stays whatever happens to the process: each piece is handed to the
 * system at once, so that after a kill only the last one can be incomplete.  The file is locked: a second process that
 * opens it is refused. */
typedef struct rg_appender rg_appender;

rg_appender *rg_appender_open(const char *path, rg_error *err); /* an empty one where there is none */
/* Cut the file to so many bytes; pieces are added behind them. */
bool rg_appender_cut(rg_appender *a, uint64_t size, rg_error *err) RG_MUST_CHECK;
/* False: nothing of the piece is in the file (it is cut to what it was). */
bool rg_appender_add(rg_appender *a, const void *p, size_t n, rg_error *err) RG_MUST_CHECK;
bool rg_appender_sync(rg_appender *a, rg_error *err) RG_MUST_CHECK; /* it outlives the machine too */
void rg_appender_close(rg_appender *a); /* NULL is fine */

/* For tests: called before each operation ("open", "read", "write", "sync", "rename"); false makes it fail with EIO.
 * NULL: always yes. */
void rg_file_set_gate(bool (*allow)(void *arg, const char *operation), void *arg);

#endif
