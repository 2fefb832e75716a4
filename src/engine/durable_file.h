/* durable_file.h -- one block of state in a file of its own, and a folder of such files that is kept below a size.
 *
 * FOLDER/ab/REST-G.kv holds the block of group G whose name begins with the byte ab.  A file is written beside its name
 * and renamed, so it is there whole or not at all; nothing is synced, since a reader checks every byte: what a crash
 * of the machine left is found to be damaged.  Several processes may use one folder and wait for nobody: who writes
 * what is there already leaves it, and who reads a file that is being removed still has it open.
 *
 * Age.  A file's time is that of its latest use, in whole seconds; the digits below the second say how deep in its
 * prefix the block stands.  Files of about the same time go the deepest first, since a prefix without its beginning is
 * of no use.  Files that have other names are not touched.  Knows no index and no thread. */
#ifndef RG_ENGINE_DURABLE_FILE_H
#define RG_ENGINE_DURABLE_FILE_H

#include "engine/prefix.h"

typedef struct rg_block_place {
    rg_block_name name;
    int group;
    int32_t depth; /* blocks before it */
} rg_block_place;

typedef enum rg_block_read { RG_BLOCK_READ, RG_BLOCK_NONE, RG_BLOCK_DAMAGED } rg_block_read;

/* Make the folder if there is none, and see that files can be written there. */
bool rg_block_folder_open(const char *folder, rg_error *err);

bool rg_block_file_exists(const char *folder, const rg_block_place *at);
/* Exactly `bytes` into `to`, which may be overwritten whatever comes out.  DAMAGED: a file is there and is not what was
 * written, or of another size; it was removed.  A read makes it young again. */
rg_block_read rg_block_file_read(const char *folder, const rg_block_place *at, void *to, size_t bytes);
/* Make a file that is there and has just this young again, or write it; *written: the bytes that were.  False and *err:
 * it could not be written, and nothing of it is left. */
bool rg_block_file_write(const char *folder, const rg_block_place *at, const void *block, size_t bytes,
                         uint64_t *written, rg_error *err) RG_MUST_CHECK;

/* If the files have more than `most` bytes, remove the oldest until `kept` are left at most; and remove what killed
 * writers have left.  Returns the bytes that are left. */
uint64_t rg_block_folder_trim(const char *folder, uint64_t most, uint64_t kept);

#endif
