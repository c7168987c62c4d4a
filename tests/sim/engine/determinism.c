/* Same input, same bytes: hashes of programs and timelines equal the committed hashes in every
 * build, optimised or sanitized, with any compiler. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/hash_runs.h"

#include <criterion/criterion.h>
#include <string.h>

Test(determinism, hashes_equal_the_committed_ones)
{
    rp_text golden = {0};
    cr_assert(
        eq(int, rp_text_read_file(RP_TEST_ROOT "/golden/hashes.csv", 1 << 20, &golden), RP_OK));
    static char now[1 << 16];
    FILE *stream = fmemopen(now, sizeof now, "w");
    cr_assert(eq(int, rp_test_hash_runs(stream), RP_OK));
    fclose(stream);
    cr_expect(eq(str, now, golden.bytes));
    rp_text_fini(&golden);
}

Test(determinism, a_second_run_is_the_same)
{
    static char first[1 << 16];
    static char second[1 << 16];
    FILE *stream = fmemopen(first, sizeof first, "w");
    cr_assert(eq(int, rp_test_hash_runs(stream), RP_OK));
    fclose(stream);
    stream = fmemopen(second, sizeof second, "w");
    cr_assert(eq(int, rp_test_hash_runs(stream), RP_OK));
    fclose(stream);
    cr_expect(eq(str, first, second));
}
