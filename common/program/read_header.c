/* The head of a program in text form: sizes, modes, traits. */
#include "common/base/text.h"
#include "common/program/read_internal.h"

#include <string.h>

static rp_status read_number_line(rp_reader *r, const char *key, uint64_t high, uint32_t *value_out)
{
    uint64_t value = 0;
    RP_TRY(rp_read_key(r, key));
    RP_TRY(rp_read_number(r, key, 1, high, &value));
    *value_out = (uint32_t)value;
    return rp_read_line_end(r);
}

static rp_status read_schedule(rp_reader *r)
{
    RP_TRY(rp_read_key(r, "schedule"));
    const char *valid = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-";
    if (!rp_read_word(r) || strspn(r->word, valid) != strlen(r->word)) {
        RP_READ_FAIL(
            r, "schedule: '%s' is no name; valid are up to %d letters, digits, '_', '+' and '-'",
            r->word, RP_READ_MAX_WORD - 1);
    }
    RP_TRY(rp_arena_copy_text(r->program->arena, r->word, strlen(r->word), &r->program->schedule));
    return rp_read_line_end(r);
}

static rp_status read_modes(rp_reader *r)
{
    RP_TRY(rp_read_key(r, "recompute"));
    if (!rp_read_word(r) || !rp_recompute_parse(r->word, &r->program->recompute)) {
        RP_READ_FAIL(r,
                     "recompute: '%s' is not valid; valid values are none, wait, early, selective",
                     r->word);
    }
    RP_TRY(rp_read_line_end(r));
    RP_TRY(rp_read_key(r, "asynchronous"));
    bool yes = rp_read_word(r) && strcmp(r->word, "yes") == 0;
    if (!yes && strcmp(r->word, "no") != 0) {
        RP_READ_FAIL(r, "asynchronous: '%s' is not valid; valid values are yes, no", r->word);
    }
    r->program->asynchronous = yes;
    return rp_read_line_end(r);
}

static rp_status read_version(rp_reader *r)
{
    uint64_t version = 0;
    RP_TRY(rp_read_key(r, "rp-program"));
    RP_TRY(rp_read_number(r, "version of the format", 1, RP_PROGRAM_VERSION, &version));
    if (version != RP_PROGRAM_VERSION) {
        RP_READ_FAIL(
            r,
            "version %llu of the format does not say where weights are and how the software runs; "
            "valid is version %u: write the program anew with {program_out}",
            (unsigned long long)version, RP_PROGRAM_VERSION);
    }
    return rp_read_line_end(r);
}

/* Takes the word of a line "KEY WORD"; an empty word if it is missing. */
static rp_status read_word_line(rp_reader *r, const char *key)
{
    RP_TRY(rp_read_key(r, key));
    rp_read_word(r);
    return RP_OK;
}

static rp_status unknown_trait(rp_reader *r)
{
    rp_text names = {0};
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < rp_trait_count && status == RP_OK; i++) {
        status = rp_text_print(&names, "%s%s", i == 0 ? "" : ", ", rp_trait_rows[i].text);
    }
    if (status == RP_OK) {
        rp_log_error_at(r->name, r->line,
                        "traits: '%s' is unknown or repeated; valid values are %s", r->word,
                        names.bytes);
        status = RP_INPUT;
    }
    rp_text_fini(&names);
    return status;
}

static rp_status read_trait(rp_reader *r, rp_traits *traits)
{
    const rp_trait *row = rp_trait_find(r->word);
    uint64_t value = 1;
    if (row == NULL || rp_trait_get(traits, row) != 0) {
        return unknown_trait(r);
    }
    if ((row->placements >> traits->placement & 1) == 0) {
        bool sharded = row->placements == 1u << RP_PLACEMENT_SHARDED;
        RP_READ_FAIL(r, "traits: '%s' is valid only with placement %s", r->word,
                     rp_placement_text(sharded ? RP_PLACEMENT_SHARDED : RP_PLACEMENT_RESIDENT));
    }
    if (row->type != RP_TRAIT_BOOL) {
        RP_TRY(rp_read_number(r, row->text, 1, row->most, &value));
    }
    rp_trait_set(traits, row, value);
    return RP_OK;
}

static rp_status read_traits(rp_reader *r)
{
    rp_traits *traits = &r->program->traits;
    RP_TRY(read_word_line(r, "placement"));
    if (!rp_placement_parse(r->word, &traits->placement)) {
        RP_READ_FAIL(r, "placement: '%s' is not valid; valid values are resident, offload, sharded",
                     r->word);
    }
    RP_TRY(rp_read_line_end(r));
    RP_TRY(read_word_line(r, "versions"));
    if (!rp_versions_parse(r->word, &traits->versions)) {
        RP_READ_FAIL(r, "versions: '%s' is not valid; valid values are one, two, stashed", r->word);
    }
    RP_TRY(rp_read_line_end(r));
    RP_TRY(rp_read_key(r, "traits"));
    while (rp_read_word(r)) {
        RP_TRY(read_trait(r, traits));
    }
    return RP_OK;
}

rp_status rp_read_header(rp_reader *r)
{
    rp_program *p = r->program;
    RP_TRY(read_version(r));
    RP_TRY(read_schedule(r));
    RP_TRY(read_number_line(r, "gpus", RP_MAX_GPUS, &p->gpu_count));
    RP_TRY(read_number_line(r, "microbatches", RP_MAX_MICROBATCHES, &p->microbatch_count));
    RP_TRY(read_number_line(r, "iterations", RP_MAX_ITERATIONS, &p->iteration_count));
    RP_TRY(read_number_line(r, "layers", RP_MAX_LAYERS, &p->layer_count));
    RP_TRY(read_modes(r));
    return read_traits(r);
}
