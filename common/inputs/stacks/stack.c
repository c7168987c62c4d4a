#include "common/inputs/stacks/stack.h"

#include "common/formats/config_rows.h"
#include "common/inputs/data.h"
#include "common/inputs/provenance.h"

#include <string.h>

static const rp_config_field fields[] = {
#define KEY(member, ...) RP_CONFIG_FIELD(rp_stack, member, #member, __VA_ARGS__),
#include "common/inputs/stacks/stack_rows.inc"
#undef KEY
};

const rp_config_schema rp_stack_schema = {.what = "a stack", RP_CONFIG_FIELDS(fields)};

bool rp_stack_has_cudnn(const rp_stack *stack)
{
    return strcmp(stack->attention, "cudnn") == 0;
}

static rp_status parse(const char *name_or_path, const char *path, const rp_text *text,
                       rp_arena *arena, rp_stack *stack_out)
{
    size_t lines[RP_CONFIG_MAX_FIELDS];
    const uint8_t *kinds = NULL;
    *stack_out = (rp_stack){0};
    RP_TRY(rp_config_parse(path, text->bytes, text->length, &rp_stack_schema, arena, stack_out,
                           lines));
    RP_TRY(rp_provenance_read(path, &rp_stack_schema, lines, stack_out, arena, &kinds));
    return rp_data_check_name(name_or_path, path, stack_out->name);
}

rp_status rp_stack_load(const char *name_or_path, rp_arena *arena, rp_stack *stack_out)
{
    const char *path = NULL;
    rp_text text = {0};
    rp_status status = rp_data_read(&rp_data_stacks, name_or_path, arena, &path, &text);
    if (status == RP_OK) {
        status = parse(name_or_path, path, &text, arena, stack_out);
    }
    rp_text_fini(&text);
    return status;
}
