/** @file companions.h  Files beside a checkpoint's weights, with which transformers and PEFT open
 * it.
 *
 * config.json is the one that the model was read from, byte for byte but for the type of the saved
 * weights, or made from the model's sizes where it came without one (config_write.c). With LoRA
 * there is adapter_config.json instead, as PEFT has it; adapters on random weights are on those of
 * a folder that the run saves once. What lies beside the model's config.json, or beside adapters,
 * for tokenizers and generation is carried along. All of it is read once, when a run begins: later
 * checkpoints do not depend on files that somebody changes or removes meanwhile.
 */
#pragma once

#include "common/base/text.h"
#include "exec/model/model.h"

/** Most files that a checkpoint has beside its tensors. */
#define RPEXEC_MOST_COMPANIONS 20u

typedef struct rpexec_companion {
    const char *name; /**< in the checkpoint's folder */
    const char *bytes;
    size_t length;
} rpexec_companion;

/** Files of a folder; zeroes: none. */
typedef struct rpexec_companion_list {
    uint32_t count;
    rpexec_companion files[RPEXEC_MOST_COMPANIONS];
} rpexec_companion_list;

/** Folder, beside checkpoints of adapters, of the random weights that they are on. */
#define RPEXEC_BASE "base"

/** Files of a run's checkpoints; bytes live in the arena that they were gathered in. */
typedef struct rpexec_companions {
    rpexec_companion_list step; /**< of every checkpoint */
    rpexec_companion_list base; /**< of the folder RPEXEC_BASE; count 0: the run needs none */
} rpexec_companions;

/** Where a run's model is from, and where it goes. */
typedef struct rpexec_origin {
    const char *config;   /**< file that it was read from, as Hugging Face has it; NULL: none */
    const char *weights;  /**< folder of them, that of the frozen ones with LoRA; NULL: random */
    const char *adapters; /**< folder of those that the run begins with; NULL: none */
    const char *save;     /**< folder of the run's checkpoints, which is there */
} rpexec_origin;

/**
 * Reads or makes all of a run's companions. A file that is missing is left out, and so is
 * config.json, with a warning, where no family has the model's layers.
 * @param companions_out lives in `arena`
 * @retval RP_OK, RP_INPUT (a file that is there cannot be read; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_companions_gather(const rpexec_origin *origin, const rpexec_model *model,
                                   rp_arena *arena, rpexec_companions *companions_out);

/** Writes all of a list into a folder, each atomically. @retval RP_OK, RP_INPUT, RP_IO,
 * RP_NO_MEMORY */
rp_status rpexec_companions_write(const rpexec_companion_list *list, const char *folder);

/** @return true of the names that files of a list may have. */
bool rpexec_companion_is_file(const char *name);

/* ---- inside of exec/checkpoint, and for tests ------------------------------------------------ */

/**
 * Prints a config.json from a model's sizes, which rpexec_config_load reads back as the same model.
 * @param found_out whether a family has such layers; otherwise nothing is printed
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_config_print(const rp_model *model, rp_dtype dtype, rp_text *text,
                              bool *found_out);

/**
 * Prints the text of a config.json with `dtype` as the type of the weights, in torch_dtype and
 * dtype, whichever are there; all else is as it was.
 * @param path for messages
 * @retval RP_OK, RP_INPUT (no object; logged), RP_NO_MEMORY
 */
rp_status rpexec_config_carry(const char *path, const rp_text *from, rp_dtype dtype, rp_text *text);

/** Prints adapter_config.json of a model with LoRA. @param base folder of its frozen weights, or
 * NULL @retval RP_OK, RP_INPUT (a name that JSON cannot have; logged), RP_NO_MEMORY */
rp_status rpexec_adapter_config_print(const rpexec_model *model, const char *base, rp_text *text);
