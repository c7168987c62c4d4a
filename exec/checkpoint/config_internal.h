/* Shared by the reader of config.json (config.c) and its list of keys (config_keys.c). */
#pragma once

#include "common/base/text.h"

#include <jansson.h>

/* Defaults of a family's configuration class in transformers, for keys that are missing. */
typedef struct rpexec_family {
    const char *type;   /* model_type */
    const char *class;  /* in architectures */
    uint32_t kv_heads;  /* 0: as many as heads */
    uint32_t head_dim;  /* 0: hidden_size / num_attention_heads */
    bool null_kv_heads; /* null means as many as heads; elsewhere it is an error */
    bool null_head_dim;
    bool qk_norm;
    bool mixture;
} rpexec_family;

/* The file's object, or one inside of it. */
typedef struct rpexec_config {
    const char *path;
    const rp_text *text;
    const char *name; /* of the object; NULL: the file's */
    const json_t *values;
    json_t *rest; /* `values` without the keys that have been read */
    const rpexec_family *family;
} rpexec_config;

/** Logs "FILE:LINE: KEY: CAUSE; valid values are VALID", without a line where the key is missing.
 * @param cause may be empty
 * @retval RP_INPUT */
rp_status rpexec_config_refuse(const rpexec_config *r, const char *key, const char *cause,
                               const char *valid);

/** @return true for null, [] and {}. */
bool rpexec_config_is_empty(const json_t *value);

/** Refuses every key of `rest` that training depends on, or might. @retval RP_OK, RP_INPUT */
rp_status rpexec_config_check_rest(const rpexec_config *r);
