#include "common/program/traits.h"

#include "common/base/hash.h"
#include "common/program/limits.h"

#include <string.h>

static const char *const placements[] = {
#define PLACEMENT_TEXT(name, text, meaning) text,
    RP_PLACEMENT_LIST(PLACEMENT_TEXT)};

static const char *const versions[] = {
#define VERSIONS_TEXT(name, text, meaning) text,
    RP_VERSIONS_LIST(VERSIONS_TEXT)};

static const char *const axes_words[] = {
#define AXES_TEXT(name, word) word,
    RP_AXES_LIST(AXES_TEXT)};

#define TYPE_OF(member)                                                                            \
    _Generic(((rp_traits *)NULL)->member, bool                                                     \
             : RP_TRAIT_BOOL, uint32_t                                                             \
             : RP_TRAIT_UINT32, uint64_t                                                           \
             : RP_TRAIT_UINT64)
#define MOST_OF(member)                                                                            \
    _Generic(((rp_traits *)NULL)->member, bool : 1, uint32_t : UINT32_MAX, uint64_t : UINT64_MAX)
#define ROW(member, text, most, placements, hashed)                                                \
    {text, offsetof(rp_traits, member), most, TYPE_OF(member), placements, RP_HASHED_##hashed},

const rp_trait rp_trait_rows[] = {
#define SHARDING_ROW(type, member, text, hashed)                                                   \
    ROW(sharding.member, text, MOST_OF(sharding.member), 1u << RP_PLACEMENT_SHARDED, hashed)
    RP_SHARDING_LIST(SHARDING_ROW)
/* Products of two numbers of GPUs fit into 32 bits. */
#define LAYOUT_ROW(type, member, text, most, placements)                                           \
    ROW(layout.member, text, most, placements, IF_SET)
        RP_LAYOUT_LIST(LAYOUT_ROW)
#define TRAIT_ROW(member, text, hashed) ROW(member, text, MOST_OF(member), UINT32_MAX, hashed)
            RP_TRAIT_LIST(TRAIT_ROW)
#define TYPES_ROW(member, text, count) ROW(types.member, text, (count)-1, UINT32_MAX, IF_SET)
                RP_TYPES_LIST(TYPES_ROW)};

const uint32_t rp_trait_count = sizeof rp_trait_rows / sizeof rp_trait_rows[0];

const rp_trait *rp_trait_find(const char *text)
{
    for (uint32_t i = 0; i < rp_trait_count; i++) {
        if (strcmp(rp_trait_rows[i].text, text) == 0) {
            return &rp_trait_rows[i];
        }
    }
    return NULL;
}

uint64_t rp_trait_get(const rp_traits *traits, const rp_trait *row)
{
    const char *at = (const char *)traits + row->offset;
    switch (row->type) {
    case RP_TRAIT_BOOL:
        return *(const bool *)at ? 1 : 0;
    case RP_TRAIT_UINT32:
        return *(const uint32_t *)(const void *)at;
    case RP_TRAIT_UINT64:
        break;
    }
    return *(const uint64_t *)(const void *)at;
}

void rp_trait_set(rp_traits *traits, const rp_trait *row, uint64_t value)
{
    char *at = (char *)traits + row->offset;
    switch (row->type) {
    case RP_TRAIT_BOOL:
        *(bool *)at = value != 0;
        break;
    case RP_TRAIT_UINT32:
        *(uint32_t *)(void *)at = (uint32_t)value;
        break;
    case RP_TRAIT_UINT64:
        *(uint64_t *)(void *)at = value;
        break;
    }
}

const char *rp_placement_text(rp_placement placement)
{
    return placements[placement];
}

const char *rp_versions_text(rp_versions kept)
{
    return versions[kept];
}

static bool find_text(const char *const *texts, size_t count, const char *text, size_t *index_out)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(texts[i], text) == 0) {
            *index_out = i;
            return true;
        }
    }
    return false;
}

bool rp_placement_parse(const char *text, rp_placement *placement_out)
{
    size_t index = 0;
    bool found = find_text(placements, sizeof placements / sizeof placements[0], text, &index);
    *placement_out = found ? (rp_placement)index : *placement_out;
    return found;
}

bool rp_versions_parse(const char *text, rp_versions *versions_out)
{
    size_t index = 0;
    bool found = find_text(versions, sizeof versions / sizeof versions[0], text, &index);
    *versions_out = found ? (rp_versions)index : *versions_out;
    return found;
}

void rp_traits_write(const rp_traits *traits, FILE *stream)
{
    fprintf(stream, "placement %s\nversions %s\ntraits", rp_placement_text(traits->placement),
            rp_versions_text(traits->versions));
    for (uint32_t i = 0; i < rp_trait_count; i++) {
        const rp_trait *row = &rp_trait_rows[i];
        uint64_t value = rp_trait_get(traits, row);
        if (value != 0) {
            fprintf(stream, " %s", row->text);
        }
        if (value != 0 && row->type != RP_TRAIT_BOOL) {
            fprintf(stream, " %llu", (unsigned long long)value);
        }
    }
    fputc('\n', stream);
}

uint64_t rp_traits_hash(const rp_traits *traits, uint64_t hash)
{
    hash = rp_hash_add(hash, (uint64_t)traits->placement << 8 | (uint64_t)traits->versions);
    for (uint32_t i = 0; i < rp_trait_count; i++) {
        const rp_trait *row = &rp_trait_rows[i];
        uint64_t value = rp_trait_get(traits, row);
        if (row->hashed == RP_HASHED_IF_SET && value != 0) {
            hash = rp_hash_add(hash, i);
        }
        if (row->hashed == RP_HASHED_ALWAYS || value != 0) {
            hash = rp_hash_add(hash, value);
        }
    }
    return hash;
}

const char *rp_axes_text(rp_axes axes)
{
    return axes_words[axes];
}

rp_strides rp_layout_strides(const rp_layout *layout, uint32_t pipeline)
{
    rp_strides strides = {0};
    uint32_t stride = 1;
    for (const char *axis = rp_axes_text((rp_axes)layout->axes); *axis != '\0'; axis++) {
        uint32_t *of = *axis == 't'   ? &strides.tensor
                       : *axis == 'd' ? &strides.data
                                      : &strides.pipeline;
        *of = stride;
        stride *= *axis == 't'   ? rp_layout_tensor(layout)
                  : *axis == 'd' ? rp_layout_data(layout)
                                 : pipeline;
    }
    /* GPUs that have experts whole are counted over tensor groups and copies, which
     * rp_compile_check_layout requires to be neighbours. */
    bool whole = rp_layout_expert_tensor(layout) != rp_layout_tensor(layout);
    bool tensor = whole && (rp_layout_data(layout) == 1 || strides.tensor < strides.data);
    strides.expert = tensor ? strides.tensor : strides.data;
    return strides;
}

const char *rp_traits_only_synchronous(const rp_traits *traits)
{
    return rp_is_data_parallel(traits)
               ? "its ranks step together, after the last gradient and before the next forward, so "
                 "async would change nothing"
               : NULL;
}
