/* The reader of safetensors headers: the input is a whole file. */
#include "exec/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Properties on which a loader relies: tensors lie inside the file, without gaps or overlaps, and
 * are as large as their shapes. */
static void check(const rpexec_safetensors *file, size_t size)
{
    static const uint64_t widths[RP_DTYPE_COUNT] = {4, 2, 2};
    uint64_t at = file->count > 0 ? file->tensors[0].begin : 0;
    for (uint32_t i = 0; i < file->count; i++) {
        const rpexec_stored *t = &file->tensors[i];
        fuzz_require(t->begin == at && t->end <= size, "tensors cover the data");
        fuzz_require(t->begin >= 10, "tensors begin behind the header");
        fuzz_require(t->end - t->begin == t->elements * widths[t->dtype], "bytes fit the shape");
        fuzz_require(t->rank <= RPEXEC_SAFETENSORS_MAX_RANK, "a rank in range");
        fuzz_require(rpexec_safetensors_find(file, t->name) != NULL, "each tensor is found");
        at = t->end;
    }
    fuzz_require(file->count == 0 || at == size, "nothing lies behind the last tensor");
    for (uint32_t i = 0; i < file->metadata_count; i++) {
        fuzz_require(rpexec_safetensors_metadata(file, file->metadata[i].key) != NULL,
                     "metadata is found");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    rp_arena *arena = NULL;
    rpexec_safetensors file;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    rp_status status = rpexec_safetensors_parse(FUZZ_FILE, data, size, size, arena, &file);
    if (status == RP_OK) {
        check(&file, size);
    } else {
        fuzz_require_refusal(status, "");
    }
    rp_arena_destroy(arena);
    return fuzz_end();
}
