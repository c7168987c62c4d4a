/** @file data.h  From a registered name or a path to the bytes of a data file. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/formats/csv.h"

#include <stdbool.h>

/**
 * Folder with the shipped traces/, plots/ and experiments/: environment RP_DATA, else the nearest
 * share/rpsim in or above the folder of the file that this code was loaded from. That file is
 * librpsim.so if a program has loaded it, otherwise the program itself. An installed tree may be
 * moved; build folders have a share/rpsim of links to the sources.
 * @return a path that lives as long as the process; NULL: there is none
 */
const char *rp_data_shipped(void);

/**
 * Path of a file of a folder of traces ("configs/paper.csv"): in the first folder of environment
 * RP_TRACES (separated by ':') that has it, otherwise among the shipped files. If no folder has it,
 * the path is the last that was tried, so that opening it names the missing file.
 * @param path_out lives in the arena
 * @retval RP_OK, RP_INPUT (a folder of RP_TRACES is not there, or nothing was shipped; logged),
 *         RP_NO_MEMORY
 */
rp_status rp_data_file(const char *relative, rp_arena *arena, const char **path_out,
                       bool *found_out);

/**
 * rp_data_file, then its bytes.
 * @param most bytes; a longer file is refused
 * @param bytes_out zero-initialised by the caller, who ends it by rp_text_fini
 * @retval RP_OK, RP_INPUT (also for a missing file; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_data_read_file(const char *relative, size_t most, rp_arena *arena,
                            const char **path_out, rp_text *bytes_out);

/**
 * rp_data_file, then the table in it, of values with commas between.
 * @retval as rp_data_read_file
 */
rp_status rp_data_read_csv(const char *relative, rp_arena *arena, rp_csv *table_out);

/** A kind of data file. */
typedef struct rp_data_kind {
    const char *folder;  /**< name of its folder below a folder of traces */
    const char *setting; /**< key in braces of the setting that names a file of this kind */
    const char *noun;
    const char *files; /**< for messages: files whose paths are accepted besides registered names */
} rp_data_kind;

extern const rp_data_kind rp_data_models;
extern const rp_data_kind rp_data_platforms;
extern const rp_data_kind rp_data_gpus;
extern const rp_data_kind rp_data_stacks;
extern const rp_data_kind rp_data_costs;

/**
 * Path of a data file: name_or_path itself if it contains '/' or ends in ".yaml", otherwise
 * rp_data_file of FOLDER/NAME.yaml.
 * @retval RP_OK, RP_INPUT (unknown name; logged with the known ones), RP_IO, RP_NO_MEMORY
 */
rp_status rp_data_path(const rp_data_kind *kind, const char *name_or_path, rp_arena *arena,
                       const char **path_out);

/**
 * Path of a name's registered file, and whether there is such a file.
 * @retval as rp_data_file
 */
rp_status rp_data_find(const rp_data_kind *kind, const char *name, rp_arena *arena,
                       const char **path_out, bool *found_out);

/**
 * rp_data_path, then the bytes of the file.
 * @param path_out the file's path, for messages; lives in the arena
 * @param bytes_out zero-initialised by the caller, who ends it by rp_text_fini
 */
rp_status rp_data_read(const rp_data_kind *kind, const char *name_or_path, rp_arena *arena,
                       const char **path_out, rp_text *bytes_out);

/**
 * Checks that the `name` of a registered file is its file name: otherwise results would carry
 * another name than the user asked for. Files given by path may be called anything.
 * @param own_name the key `name` of the file
 * @retval RP_OK, RP_INPUT (logged)
 */
rp_status rp_data_check_name(const char *name_or_path, const char *path, const char *own_name);

/**
 * The `name` for a file that is to be written: its file name without ".yaml", or `otherwise` if
 * that is no valid name (RP_CONFIG_NAME) of at most `most` bytes.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rp_data_name_of(const char *path, size_t most, const char *otherwise, rp_arena *arena,
                          const char **name_out);

/**
 * Sorted names that --list prints: KIND/ *.yaml of all folders of traces, each name once. KIND is
 * "models", "platforms", "gpus", "stacks", "costs".
 * @retval RP_OK, RP_INPUT (there is no such folder; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_data_list(const char *kind, rp_arena *arena, const char ***names_out,
                       uint32_t *count_out);
