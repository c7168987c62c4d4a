/** @file files_internal.h  The writers of an export, each for a system. */
#pragma once

#include "common/base/log.h"
#include "sim/rpadvise/export/systems.h"

/** Inputs of a writer. */
typedef struct rpadvise_job {
    const rpsim_row *row;
    rpadvise_layout layout;
    const char *command; /**< rpsim's command line for the row */
    rp_arena *arena;
} rpadvise_job;

/** A file of an export. */
typedef struct rpadvise_file {
    const char *name; /**< name of the file; NULL: there is none */
    /** Write errors stay in the stream. @retval RP_OK, RP_USAGE, RP_NO_MEMORY, RP_IO */
    rp_status (*write)(const rpadvise_job *job, FILE *stream);
} rpadvise_file;

/** A system's files. */
typedef struct rpadvise_exporter {
    const char *system; /**< name of the system, as in systems.csv */
    const char *open;   /**< settings left to the user; the first comment of each file */
    rpadvise_file files[2];
    /** Writes list items about settings that the files cannot express. */
    void (*notes)(const rpadvise_job *job, FILE *stream);
} rpadvise_exporter;

extern const rpadvise_exporter rpadvise_export_roundpipe;
extern const rpadvise_exporter rpadvise_export_deepspeed;
extern const rpadvise_exporter rpadvise_export_megatron;
extern const rpadvise_exporter rpadvise_export_torch_pipelining;
extern const rpadvise_exporter rpadvise_export_torch_fsdp;
extern const rpadvise_exporter rpadvise_export_rpexec;

/** @return PyTorch's name of the type: "float16"; static. */
const char *rpadvise_torch_dtype(rp_dtype dtype);

/** @return the layers of the pipeline's largest stage. */
uint32_t rpadvise_most_layers(const rp_partition *partition);

/** Writes `counts` with ", " between. */
void rpadvise_write_counts(const uint32_t *counts, uint32_t count, FILE *stream);

/** Writes the lines of the formatted text as list items, wrapped at 100 columns. */
void rpadvise_note(FILE *stream, const char *format, ...) RP_PRINTF(2, 3);

/** Writes the item with the sizes that the training script must set: microbatches and calls. */
void rpadvise_note_sizes(const rpadvise_job *job, FILE *stream);
