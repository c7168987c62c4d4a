/* Finds the family of a file, and the family as which a file of an unknown family could be read. */
#include "common/base/log.h"
#include "common/inputs/huggingface/config.h"

#include <string.h>

/* Sizes that every file has to give: those of every family first, then those of experts and latent
 * vectors.
 */
static const char *const sizes[] = {"num_hidden_layers",
                                    "hidden_size",
                                    "intermediate_size",
                                    "num_attention_heads",
                                    "vocab_size",
                                    "num_key_value_heads",
                                    "head_dim",
                                    "num_experts",
                                    "num_local_experts",
                                    "n_routed_experts",
                                    "moe_num_experts",
                                    "num_experts_per_tok",
                                    "moe_k",
                                    "moe_topk",
                                    "moe_intermediate_size",
                                    "intermediate_size_mlp",
                                    "shared_expert_intermediate_size",
                                    "n_shared_experts",
                                    "num_shared_experts",
                                    "moe_num_shared_experts",
                                    "first_k_dense_replace",
                                    "kv_lora_rank",
                                    "q_lora_rank",
                                    "qk_rope_head_dim",
                                    "qk_nope_head_dim",
                                    "v_head_dim"};
#define COMMON_SIZES 7u

rp_status rp_hf_missing(const rp_hf_config *config, rp_arena *arena, uint32_t *count_out,
                        const char **list_out)
{
    *count_out = 0;
    *list_out = "";
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const json_t *value = json_object_get(config->defaults, sizes[i]);
        if (json_is_integer(value) && json_object_get(config->values, sizes[i]) == NULL) {
            RP_TRY(rp_arena_print(arena, list_out, "%s%s%s %lld", *list_out,
                                  *count_out != 0 ? ", " : "", sizes[i],
                                  (long long)json_integer_value(value)));
            *count_out += 1;
        }
    }
    return RP_OK;
}

/* ---- families that fit ----------------------------------------------------------------------- */

#define MOST_NAMES 16u

/* The result of reading an object as a family. */
typedef struct fit {
    bool reads;        /* every value could be read */
    uint32_t missing;  /* sizes that the object lacks */
    uint32_t unread;   /* keys of shapes that the family does not read */
    const char *names; /* the first unread keys */
} fit;

static rp_status add_unread(const char *key, rp_arena *arena, fit *fit_out)
{
    const char *name = fit_out->unread == MOST_NAMES ? "…" : key;
    if (fit_out->unread <= MOST_NAMES) {
        RP_TRY(rp_arena_print(arena, &fit_out->names, "%s%s%.48s", fit_out->names,
                              fit_out->unread != 0 ? ", " : "", name));
    }
    fit_out->unread++;
    return RP_OK;
}

static rp_status try_family(const rp_hf_config *config, const rp_hf_family *family, rp_arena *arena,
                            fit *fit_out)
{
    rp_reason why;
    const char *list = "";
    const char *key;
    json_t *value;
    rp_hf_config trial = {0};
    rp_model model = {0};
    RP_TRY(rp_hf_open(config, config->name, config->values, &trial));
    trial.reason = &why;
    rp_status status = rp_hf_set_family(&trial, family);
    status = status == RP_OK ? rp_hf_read_shapes(&trial, arena, &model) : status;
    trial.assumed = true;
    status = status == RP_OK ? rp_hf_check_activation(&trial) : status;
    fit_out->reads = status == RP_OK;
    json_object_foreach(trial.rest, key, value)
    {
        bool unread = status == RP_OK && rp_hf_alters_shapes(&trial, key, value);
        status = unread ? add_unread(key, arena, fit_out) : status;
    }
    if (status == RP_OK) {
        status = rp_hf_missing(&trial, arena, &fit_out->missing, &list);
    }
    rp_hf_close(&trial);
    return status == RP_NO_MEMORY ? status : RP_OK;
}

/* Keeps in `known` the keys that some family knows. Other keys of shapes, which no family reads,
 * are added to `others`. */
static rp_status sort_keys(const rp_hf_config *config, json_t *known, rp_arena *arena, fit *others)
{
    const char *key;
    json_t *value;
    bool shape = false;
    const char *effect = NULL;
    json_object_foreach(config->values, key, value)
    {
        if (rp_hf_is_known(key, &shape, &effect)) {
            RP_TRY(json_object_set(known, key, value) == 0 ? RP_OK : RP_NO_MEMORY);
        } else if (rp_hf_alters_shapes(config, key, value)) {
            RP_TRY(add_unread(key, arena, others));
        }
    }
    return RP_OK;
}

/* Removes the sizes that every file has from an object. */
static void take_sizes(json_t *known)
{
    for (size_t i = 0; i < COMMON_SIZES; i++) {
        (void)json_object_del(known, sizes[i]);
    }
}

/* Finds the first family whose keys an object has: a family that reads all its keys of shapes, and
 * of whose sizes the object lacks none. If there is no such family, names the keys that the nearest
 * family does not read. */
static rp_status find_closest(const rp_hf_config *config, rp_hf_proposable proposable,
                              json_t *known, rp_arena *arena, const rp_hf_family **family_out,
                              const char **unread_out)
{
    const rp_hf_family *family = NULL;
    fit others = {.names = ""};
    fit nearest = {.names = ""};
    rp_hf_config of_known = *config;
    RP_TRY(sort_keys(config, known, arena, &others));
    of_known.values = known;
    *family_out = NULL;
    for (size_t i = 0; *family_out == NULL && (family = rp_hf_family_at(i)) != NULL; i++) {
        fit own = others;
        if (proposable != NULL && !proposable(family)) {
            continue;
        }
        RP_TRY(try_family(&of_known, family, arena, &own));
        bool fits = own.reads && own.unread == 0 && own.missing == 0;
        *family_out = fits ? family : NULL;
        if (own.reads && (!nearest.reads || own.unread < nearest.unread)) {
            nearest = own;
        }
    }
    if (*family_out == NULL && !nearest.reads) { /* no family gets as far */
        const char *key;
        json_t *value;
        take_sizes(known);
        nearest = others;
        json_object_foreach(known, key, value)
        {
            RP_TRY(rp_hf_alters_shapes(&of_known, key, value) ? add_unread(key, arena, &nearest)
                                                              : RP_OK);
        }
    }
    *unread_out = nearest.names;
    return RP_OK;
}

static rp_status refuse_family(const rp_hf_config *config, const char *type, const char *names,
                               rp_hf_proposable proposable, rp_arena *arena)
{
    const rp_hf_family *family = NULL;
    const char *unread = "";
    const char *cause = NULL;
    const char *valid = NULL;
    json_t *known = json_object();
    rp_status status = known == NULL
                           ? RP_NO_MEMORY
                           : find_closest(config, proposable, known, arena, &family, &unread);
    json_decref(known);
    RP_TRY(status);
    RP_TRY(rp_arena_print(arena, &cause, "%s%.64s%s", type[0] != '\0' ? "family '" : "no family",
                          type, type[0] != '\0' ? "' is not known" : " is said"));
    if (family != NULL) {
        RP_TRY(rp_arena_print(arena, &valid,
                              "%s %s, which reads all its keys that say shapes, and the families "
                              "%s",
                              rp_log_spell("{assume}").text, family->type, names));
    } else {
        RP_TRY(rp_arena_print(arena, &valid,
                              "files of traces/models, and the families %s; none of them reads %s",
                              names, unread[0] != '\0' ? unread : "its values"));
    }
    return rp_hf_refuse(config, "model_type", cause, valid);
}

/* ---- the family ------------------------------------------------------------------------------ */

/* Checks that the file itself gives all sizes. */
static rp_status check_assumed(const rp_hf_config *config, rp_arena *arena)
{
    uint32_t missing = 0;
    const char *list = "";
    RP_TRY(rp_hf_missing(config, arena, &missing, &list));
    if (missing == 0) {
        return RP_OK;
    }
    rp_log_error("%s: {assume}: keys of %s are not there, whose defaults are its own: %s; valid "
                 "values are families all of whose sizes the file has",
                 config->path, config->family->type, list);
    return RP_INPUT;
}

rp_status rp_hf_choose_family(rp_hf_config *config, const json_t *type, const char *assume,
                              const char *names, rp_hf_proposable proposable, rp_arena *arena)
{
    const char *name = json_is_string(type) ? json_string_value(type) : "";
    const rp_hf_family *family = rp_hf_family_of(name);
    const rp_hf_family *assumed = rp_hf_family_of(assume);
    if (family != NULL) {
        if (assume != NULL && family != assumed) {
            rp_log_warning("%s: {assume}: family %s is known and read as itself", config->path,
                           family->type);
        }
        return rp_hf_set_family(config, family);
    }
    if (assume == NULL) {
        return refuse_family(config, name, names, proposable, arena);
    }
    if (assumed == NULL) {
        rp_log_error("{assume}: '%.64s' is not a family that is known; valid values are %s", assume,
                     names);
        return RP_USAGE;
    }
    const char *effect = NULL;
    RP_TRY(rp_arena_print(arena, &effect,
                          "family '%.64s' is not known; it is read as %s, as %s says", name,
                          assumed->type, rp_log_spell("{assume}").text));
    rp_hf_warn(config, "model_type", effect);
    config->assumed = true;
    RP_TRY(rp_hf_set_family(config, assumed));
    return check_assumed(config, arena);
}
