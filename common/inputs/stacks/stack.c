#include "common/inputs/stacks/stack.h"

#include "common/base/log.h"
#include "common/formats/config_rows.h"
#include "common/inputs/data.h"
#include "common/inputs/provenance.h"

#include <string.h>

static const rp_config_field fields[] = {
#define KEY(member, ...) RP_CONFIG_FIELD(rp_stack, member, #member, __VA_ARGS__),
#include "common/inputs/stacks/stack_rows.inc"
#undef KEY
};

enum {
#define KEY(member, ...) KEY_##member,
#include "common/inputs/stacks/stack_rows.inc"
#undef KEY
};

const rp_config_schema rp_stack_schema = {
    .what = "a stack", .prefix = "stack.", RP_CONFIG_FIELDS(fields)};

/* ---- selective recompute --------------------------------------------------------------------- */

#define SEPARATORS " ,"
#define USUAL_AGAIN (RP_AGAIN_ATTENTION | RP_AGAIN_NORMS | RP_AGAIN_ACTIVATION)

/* @param unknown_out the first word that means nothing; NULL: none */
static uint32_t read_again(const char *list, const char **unknown_out)
{
    static const char *const words[] = {"attention", "norms", "activation", "second-products"};
    uint32_t again = 0;
    *unknown_out = NULL;
    for (const char *at = list; *(at += strspn(at, SEPARATORS)) != '\0';) {
        size_t length = strcspn(at, SEPARATORS);
        size_t i = 0;
        while (i < 4 && (strlen(words[i]) != length || strncmp(words[i], at, length) != 0)) {
            i++;
        }
        *unknown_out = i == 4 && *unknown_out == NULL ? at : *unknown_out;
        again |= i < 4 ? 1u << i : 0;
        at += length;
    }
    return again;
}

uint32_t rp_stack_again(const rp_stack *stack)
{
    const char *unknown = NULL;
    const char *list = stack != NULL && stack->selective != NULL ? stack->selective : "";
    return stack != NULL ? read_again(list, &unknown) : USUAL_AGAIN;
}

static rp_status check_again(const char *shown, size_t line, const rp_stack *stack)
{
    const char *unknown = NULL;
    if (stack->selective == NULL) {
        return RP_OK;
    }
    uint32_t again = read_again(stack->selective, &unknown);
    bool alone = (again & RP_AGAIN_SECOND_PRODUCTS) == 0 || again == RP_AGAIN_SECOND_PRODUCTS;
    if (unknown == NULL && again != 0 && alone) {
        return RP_OK;
    }
    rp_log_error_at(shown, line,
                    "selective: '%s' is not valid; valid are attention, norms and activation with "
                    "blanks between them, and second-products",
                    stack->selective);
    return RP_INPUT;
}

rp_attention_kernel rp_stack_attention(const rp_stack *stack)
{
    return strcmp(stack->attention, "cudnn") == 0    ? RP_ATTENTION_CUDNN
           : strcmp(stack->attention, "flash1") == 0 ? RP_ATTENTION_FLASH1
                                                     : RP_ATTENTION_FLASH2;
}

/* @param shown the file and its changes, for messages */
static rp_status parse(const char *shown, const rp_text *text, const rp_changes *changes,
                       rp_arena *arena, rp_stack *stack_out, rp_reason *reason)
{
    size_t lines[RP_CONFIG_MAX_FIELDS];
    const uint8_t *kinds = NULL;
    *stack_out = (rp_stack){0};
    RP_TRY(rp_config_parse(shown, text->bytes, text->length, &rp_stack_schema, arena, stack_out,
                           lines));
    RP_TRY(rp_changes_apply(changes, &rp_stack_schema, shown, arena, stack_out, lines, reason));
    RP_TRY(check_again(shown, lines[KEY_selective], stack_out));
    return rp_provenance_read(shown, &rp_stack_schema, lines, stack_out, arena, &kinds);
}

rp_status rp_stack_load(const char *name_or_path, rp_arena *arena, rp_stack *stack_out)
{
    return rp_stack_load_changed(name_or_path, NULL, arena, stack_out, NULL);
}

rp_status rp_stack_load_changed(const char *name_or_path, const rp_changes *changes,
                                rp_arena *arena, rp_stack *stack_out, rp_reason *reason)
{
    const char *path = NULL;
    const char *shown = NULL;
    rp_text text = {0};
    rp_status status = rp_data_read(&rp_data_stacks, name_or_path, arena, &path, &text);
    if (status == RP_OK) {
        shown = path;
        status = rp_changes_name(changes, &rp_stack_schema, arena, &shown);
    }
    if (status == RP_OK) {
        status = parse(shown, &text, changes, arena, stack_out, reason);
    }
    rp_text_fini(&text);
    RP_TRY(status);
    RP_TRY(rp_data_check_name(name_or_path, path, stack_out->name));
    return rp_changes_name(changes, &rp_stack_schema, arena, &stack_out->name);
}
