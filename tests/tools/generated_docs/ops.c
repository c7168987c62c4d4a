/* Kinds of ops, queues and buffers, and the operators of the executor. */
#include "common/base/text.h"
#include "common/program/program.h"
#include "common/program/traits.h"
#include "common/torch/torch_csv.h"
#include "exec/operators/operators.h"
#include "tests/tools/generated_docs/pages.h"

#include <string.h>

static void write_op_kinds(FILE *stream)
{
    static const char *const classes[] = {[RP_CLASS_COMPUTE] = "compute",
                                          [RP_CLASS_TRANSFER] = "transfer",
                                          [RP_CLASS_COLLECTIVE] = "collective",
                                          [RP_CLASS_HOST] = "host"};
    fputs("## Kinds of ops\n\n| name | class | queues | meaning |\n|---|---|---|---|\n", stream);
    for (uint32_t kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        const rp_op_row *row = &rp_op_kinds[kind];
        fprintf(stream, "| `%s` | %s |", row->text, classes[row->op_class]);
        const char *before = " ";
        for (uint32_t queue = 0; queue < RP_QUEUE_KIND_COUNT; queue++) {
            if ((row->queues >> queue & 1) != 0) {
                fprintf(stream, "%s%s", before, rp_queue_kind_text((rp_queue_kind)queue));
                before = ", ";
            }
        }
        fprintf(stream, " | %s |\n", row->meaning);
    }
}

void docs_write_ops(FILE *stream)
{
    static const struct {
        const char *text;
        int thread;
    } queues[] = {
#define QUEUE(name, text, carrier, thread, row) {text, thread},
        RP_QUEUE_KIND_LIST(QUEUE)
#undef QUEUE
    };
#define NAME(name, text) text,
    static const char *const buffers[] = {RP_BUFFER_KIND_LIST(NAME)};
#undef NAME
#define MEANING(name, text, meaning) {text, meaning},
    static const char *const placements[][2] = {RP_PLACEMENT_LIST(MEANING)};
    static const char *const versions[][2] = {RP_VERSIONS_LIST(MEANING)};
#undef MEANING
    fputs("Names in program text, timelines, traces and stores. "
          "[common/program](" DOCS_ROOT "common/program/README.md) explains them.\n\n",
          stream);
    write_op_kinds(stream);
    fputs("\n## Kinds of queues\n\n| name | place | thread in Chrome traces |\n|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < COUNT(queues); i++) {
        bool on_gpu = rp_queue_kind_on_gpu((uint16_t)i);
        fprintf(stream, "| `%s` | %s | %d |\n", queues[i].text, on_gpu ? "each GPU" : "host",
                queues[i].thread);
    }
    fputs("\n## Kinds of buffers\n\n", stream);
    for (size_t i = 0; i < COUNT(buffers); i++) {
        fprintf(stream, "%s`%s`", i == 0 ? "" : ", ", buffers[i]);
    }
    fputs(".\n\n## Placements of weights\n\n| name | meaning |\n|---|---|\n", stream);
    for (size_t i = 0; i < COUNT(placements); i++) {
        fprintf(stream, "| `%s` | %s |\n", placements[i][0], placements[i][1]);
    }
    fputs("\n## Versions of weights\n\n| name | meaning |\n|---|---|\n", stream);
    for (size_t i = 0; i < COUNT(versions); i++) {
        fprintf(stream, "| `%s` | %s |\n", versions[i][0], versions[i][1]);
    }
}

void docs_write_torch(FILE *stream)
{
    static const struct {
        const char *text;
        bool has_microbatch;
        const char *meaning;
    } types[] = {
#define TYPE(name, text, has_microbatch, computes, meaning) {text, has_microbatch, meaning},
        RP_TORCH_TYPE_LIST(TYPE)
#undef TYPE
    };
    fputs("Types of actions in a cell of PyTorch's schedule CSV "
          "([formats](" DOCS_ROOT "common/formats/formats.md)). Besides there is "
          "`(0F7;7B3)OVERLAP_F_B`: an F and a B of different stages or microbatches that form a "
          "unit and may overlap.\n\n| type | cell | meaning |\n|---|---|---|\n",
          stream);
    for (size_t i = 0; i < COUNT(types); i++) {
        fprintf(stream, "| `%s` | `2%s%s` | %s |\n", types[i].text, types[i].text,
                types[i].has_microbatch ? "0" : "", types[i].meaning);
    }
}

/* ---- operators --------------------------------------------------------------------------------
 */

/* An operator: its arguments in the order of calls, with a result after "→". */
typedef struct operator_row {
    const char *name;
    const char *arguments;
} operator_row;

#define ARGUMENT(kind, name) #kind " " #name ", "
#define OPERATOR(name, costs, ...) {#name, RPEXEC_EACH(ARGUMENT, __VA_ARGS__)},
static const operator_row operators[] = {RPEXEC_OPERATOR_LIST(OPERATOR)};

/* @return the beginning of the comment before X(name, …); NULL: another operator is between */
static const char *find_comment(const char *source, const char *name)
{
    char call[64];
    (void)snprintf(call, sizeof call, "    X(%s,", name);
    const char *at = strstr(source, call);
    if (at == NULL) {
        docs_fail("is not in operators.h", name);
        return NULL;
    }
    for (at -= 2; at > source && strncmp(at, "\n    X(", 7) != 0; at--) {
        if (strncmp(at, "/*", 2) == 0) {
            return at + 2;
        }
    }
    return NULL;
}

/* @return the length of blanks, ends of lines, and the marks that continue a macro and a comment on
 * the next line */
static size_t blanks_at(const char *text)
{
    size_t length = strspn(text, " \\\n");
    bool next_line = length > 0 && memchr(text, '\n', length) != NULL;
    return next_line && text[length] == '*' && text[length + 1] == ' ' ? length + 2 : length;
}

/* Writes a comment on a single line, with parameters as code. */
static void write_comment(const char *text, FILE *stream)
{
    static const char param[] = "@param ";
    text += blanks_at(text);
    while (strncmp(text, "*/", 2) != 0) {
        size_t blanks = blanks_at(text);
        if (blanks > 0) {
            text += blanks;
            fputs(strncmp(text, "*/", 2) != 0 ? " " : "", stream);
        } else if (strncmp(text, param, sizeof param - 1) == 0) {
            text += sizeof param - 1;
            size_t name = strcspn(text, " ");
            fprintf(stream, "`%.*s`:", (int)name, text);
            text += name;
        } else {
            fprintf(stream, "%s%c", strchr("*<|", *text) != NULL ? "\\" : "", *text);
            text++;
        }
    }
}

static void write_arguments(const char *arguments, FILE *stream)
{
    const char *before = "";
    while (*arguments != '\0') {
        size_t kind = strcspn(arguments, " ");
        bool out = strncmp(arguments, "OUT", 3) == 0;
        arguments += kind + 1;
        size_t name = strcspn(arguments, ",");
        fprintf(stream, "%s`%s%.*s`", before, out ? "*" : "", (int)name, arguments);
        before = ", ";
        arguments += name + 2;
    }
}

void docs_write_operators(FILE *stream)
{
    rp_text source = {0};
    if (rp_text_read_file(RP_SOURCE_ROOT "/exec/operators/operators.h", 1 << 20, &source) !=
        RP_OK) {
        docs_fail("cannot be read", "operators.h");
        return;
    }
    fputs("Operators that the executor runs a decoder with, on tensors in the memory of a GPU. An "
          "argument with `*` is written. `exec/operators/operators.h` has types and costs, "
          "[the executor](" DOCS_ROOT "exec/executor.md) the formulas.\n\n"
          "| operator | arguments | effect |\n|---|---|---|\n",
          stream);
    for (size_t i = 0; i < COUNT(operators); i++) {
        const char *comment = find_comment(source.bytes, operators[i].name);
        fprintf(stream, "| `%s` | ", operators[i].name);
        write_arguments(operators[i].arguments, stream);
        fputs(" | ", stream);
        if (comment != NULL) {
            write_comment(comment, stream);
        } else {
            fputs("see the one above", stream);
        }
        fputs(" |\n", stream);
    }
    rp_text_fini(&source);
}
