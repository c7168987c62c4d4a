/* Prints tests/golden/hashes.csv: `cmake --build build/release --target golden` after a change that
 * alters programs or timelines on purpose. */
#include "tests/support/hash_runs.h"

int main(void)
{
    return rp_status_exit(rp_test_hash_runs(stdout));
}
