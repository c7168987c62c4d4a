/* A command line of rpsim, its output as a text. */
#define _GNU_SOURCE /* fopencookie */
#include "sim/rpsim/command.h"
#include "sim/library/library_internal.h"

#include <string.h>

static ssize_t take(void *cookie, const char *bytes, size_t length)
{
    return rp_text_append(cookie, bytes, length) == RP_OK ? (ssize_t)length : 0;
}

rp_status rp_write_text(rp_status (*write)(void *context, FILE *stream), void *context,
                        char **text_out)
{
    rp_text text = {0};
    FILE *stream = fopencookie(&text, "w", (cookie_io_functions_t){.write = take});
    *text_out = NULL;
    if (stream == NULL) {
        rp_log_error("out of memory for the result");
        return RP_NO_MEMORY;
    }
    rp_status status = write(context, stream);
    bool whole = fclose(stream) == 0;
    status = status == RP_OK && !whole ? RP_NO_MEMORY : status;
    if (status == RP_OK) {
        *text_out = text.bytes;
    } else {
        rp_text_fini(&text);
    }
    return status;
}

typedef struct arguments {
    int argc;
    const char *const *argv;
    rp_arena *arena;
} arguments;

static rp_status copy_arguments(const arguments *a, char ***copies_out)
{
    RP_TRY(rp_arena_alloc(a->arena, (size_t)a->argc, sizeof **copies_out, copies_out));
    for (int i = 0; i < a->argc; i++) {
        if (a->argv[i] == NULL) {
            rp_log_error("rp_run_json: argument %d of %d is NULL; valid are texts", i, a->argc);
            return RP_USAGE;
        }
        size_t size = strlen(a->argv[i]) + 1;
        RP_TRY(rp_arena_alloc(a->arena, size, 1, &(*copies_out)[i]));
        memcpy((*copies_out)[i], a->argv[i], size);
    }
    return RP_OK;
}

static rp_status run(void *context, FILE *stream)
{
    const arguments *a = context;
    char **copies = NULL;
    RP_TRY(copy_arguments(a, &copies));
    return rpsim_command_run_json(a->argc, copies, a->arena, stream);
}

static rp_status run_json(int argc, const char *const *argv, char **json_out)
{
    arguments a = {.argc = argc, .argv = argv};
    if (json_out == NULL || argc < 0 || (argc > 0 && argv == NULL)) {
        rp_log_error("rp_run_json: valid are argc >= 0, argv of that length and a json_out");
        return RP_USAGE;
    }
    RP_TRY(rp_arena_create(&a.arena));
    rp_status status = rp_write_text(run, &a, json_out);
    rp_arena_destroy(a.arena);
    return status;
}

int rp_run_json(int argc, const char *const *argv, char **json_out)
{
    rp_call call;
    rp_call_begin(&call);
    if (json_out != NULL) {
        *json_out = NULL;
    }
    return (int)rp_call_end(&call, run_json(argc, argv, json_out));
}

void rp_free_json(char *json)
{
    rp_mem_release(&json);
}
