/* Text form and hash hold every trait; a schedule's name is only a label. */
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/program/program.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static rp_program *make(void)
{
    rp_program *program = NULL;
    cr_assert(eq(int, rp_test_make_program(&program), RP_OK));
    return program;
}

static void check_round_trip(const rp_program *program)
{
    char *text = NULL;
    size_t length = 0;
    rp_program *again = NULL;
    FILE *stream = open_memstream(&text, &length);
    rp_program_write(program, stream);
    fclose(stream);
    cr_assert(eq(int, rp_program_read("written", text, length, &again), RP_OK), "%s", text);
    cr_expect(eq(u64, rp_program_hash(again), rp_program_hash(program)), "%s", text);
    for (uint32_t i = 0; i < rp_trait_count; i++) {
        const rp_trait *row = &rp_trait_rows[i];
        cr_expect(eq(u64, rp_trait_get(&again->traits, row), rp_trait_get(&program->traits, row)),
                  "%s", row->text);
    }
    rp_program_destroy(again);
    free(text);
}

/* A program may have each trait of its placement, up to the highest value. */
Test(traits, text_and_hash_hold_each)
{
    rp_program *program = make();
    cr_assert(ge(u32, rp_trait_count, 15));
    for (uint32_t i = 0; i < rp_trait_count; i++) {
        bool sharded = (rp_trait_rows[i].placements >> RP_PLACEMENT_SHARDED & 1) != 0;
        program->traits.placement = sharded ? RP_PLACEMENT_SHARDED : RP_PLACEMENT_RESIDENT;
        uint64_t hash = rp_program_hash(program);
        rp_trait_set(&program->traits, &rp_trait_rows[i], rp_trait_rows[i].most);
        cr_expect(ne(u64, rp_program_hash(program), hash), "%s", rp_trait_rows[i].text);
        check_round_trip(program);
        rp_trait_set(&program->traits, &rp_trait_rows[i], 0);
        cr_expect(eq(u64, rp_program_hash(program), hash), "%s", rp_trait_rows[i].text);
    }
    rp_program_destroy(program);
}

/* Numbers of a program without traits: placement, versions, and the 19 traits that existed when
 * hashes began, all 0. Later traits leave its hash alone. */
Test(traits, that_came_later_leave_hashes_alone)
{
    const rp_traits none = {0};
    uint64_t expected = RP_HASH_SEED;
    for (int i = 0; i < 1 + 19; i++) {
        expected = rp_hash_add(expected, 0);
    }
    cr_expect(eq(u64, rp_traits_hash(&none, RP_HASH_SEED), expected),
              "a new trait's row says IF_SET (common/program/traits.h)");
}

/* A group of more GPUs than programs allow is no layout, so that products of two stay in range. */
Test(traits, groups_have_no_more_gpus_than_programs)
{
    static const char text[] = "rp-program 2\nschedule x\ngpus 1\nmicrobatches 1\niterations 1\n"
                               "layers 1\nrecompute none\nasynchronous no\nplacement resident\n"
                               "versions one\ntraits tensor-parallel 65536\n";
    rp_program *program = NULL;
    char message[256];
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rp_program_read("hostile", text, sizeof text - 1, &program);
    rp_log_capture_end();
    cr_expect(eq(int, status, RP_INPUT));
    cr_expect(strstr(message, "hostile:11: ") != NULL, "%s", message);
}

Test(traits, text_and_hash_hold_placement_and_versions)
{
    uint64_t hashes[9];
    for (int i = 0; i < 9; i++) {
        rp_program *program = make();
        program->traits.placement = (rp_placement)(i / 3);
        program->traits.versions = (rp_versions)(i % 3);
        check_round_trip(program);
        hashes[i] = rp_program_hash(program);
        for (int k = 0; k < i; k++) {
            cr_expect(ne(u64, hashes[k], hashes[i]), "%d and %d", k, i);
        }
        rp_program_destroy(program);
    }
}

/* In lowered programs only; a compute schedule moves nothing. */
Test(traits, the_type_is_hashed)
{
    rp_program *program = make();
    uint64_t hash = rp_program_hash(program);
    program->dtype = RP_DTYPE_BF16;
    cr_expect(eq(u64, rp_program_hash(program), hash));
    cr_assert(
        eq(int,
           rp_arena_alloc(program->arena, program->op_count, sizeof(uint64_t), &program->op_bytes),
           RP_OK));
    hash = rp_program_hash(program);
    program->dtype = RP_DTYPE_F32;
    cr_expect(ne(u64, rp_program_hash(program), hash));
    rp_program_destroy(program);
}

Test(traits, the_name_is_not_hashed)
{
    rp_program *program = make();
    uint64_t hash = rp_program_hash(program);
    program->schedule = "another";
    cr_expect(eq(u64, rp_program_hash(program), hash));
    rp_program_destroy(program);
}
