#include "tests/support/make_program.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const rp_stage stages[] = {
    {0, 2, RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS},
    {2, 2, RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS | RP_STAGE_HEAD},
};

static const uint16_t forward_chain[] = {0, 1};
static const uint16_t backward_chain[] = {1, 0};

static const rp_queue queues[] = {
    {0, 4, 0, RP_QUEUE_COMPUTE},
    {4, 8, 1, RP_QUEUE_COMPUTE},
    {8, 9, 0, RP_QUEUE_OPTIMIZER},
};

/* The last entry only closes the waits. */
static const rp_op ops[RP_TEST_OPS + 1] = {
    {.microbatch = 0, .wait_begin = 0, .stage = 0, .kind = RP_OP_FORWARD},
    {.microbatch = 1, .wait_begin = 0, .stage = 0, .kind = RP_OP_FORWARD},
    {.microbatch = 0, .wait_begin = 0, .stage = 0, .kind = RP_OP_BACKWARD},
    {.microbatch = 1, .wait_begin = 1, .stage = 0, .kind = RP_OP_BACKWARD},
    {.microbatch = 0, .wait_begin = 2, .stage = 1, .kind = RP_OP_FORWARD},
    {.microbatch = 0, .wait_begin = 3, .stage = 1, .kind = RP_OP_BACKWARD},
    {.microbatch = 1, .wait_begin = 3, .stage = 1, .kind = RP_OP_FORWARD},
    {.microbatch = 1, .wait_begin = 4, .stage = 1, .kind = RP_OP_BACKWARD},
    {.microbatch = 0, .wait_begin = 4, .stage = 0, .kind = RP_OP_OPTIMIZER},
    {.wait_begin = 6},
};

static const rp_wait waits[] = {5, 7, 0, 1, 3 | RP_WAIT_CONTROL, 7 | RP_WAIT_CONTROL};

static const rp_buffer buffers[] = {
    {1000, 0, 2, 0, RP_BUFFER_ACTIVATION, 0},        {1000, 1, 3, 0, RP_BUFFER_ACTIVATION, 0},
    {1000, 4, 5, 1, RP_BUFFER_ACTIVATION, 0},        {1000, 6, 7, 1, RP_BUFFER_ACTIVATION, 0},
    {500, 8, 8, RP_PLACE_HOST, RP_BUFFER_WEIGHT, 0},
};

static const int64_t times_ps[RP_TEST_OPS][2] = {
    {0, 1000001},       {1000001, 2000002}, {4200000, 6200007},
    {6200007, 8000000}, {1100000, 2100003}, {2100003, 4100003},
    {4100003, 4100003}, {4100003, 6000000}, {8000000, 8500000},
};

static rp_status copy(rp_arena *arena, const void *source, size_t count, size_t size, void *out)
{
    void *target;
    RP_TRY(rp_arena_alloc(arena, count, size, &target));
    memcpy(target, source, count * size);
    memcpy(out, &target, sizeof target);
    return RP_OK;
}

#define COPY(program, member)                                                                      \
    copy((program)->arena, member, COUNT(member), sizeof(member)[0], &(program)->member)

static rp_status fill(rp_program *program)
{
    program->schedule = "by-hand";
    program->gpu_count = 2;
    program->microbatch_count = 2;
    program->iteration_count = 1;
    program->layer_count = 2;
    program->recompute = RP_RECOMPUTE_NONE;
    program->stage_count = COUNT(stages);
    program->forward_count = COUNT(forward_chain);
    program->backward_count = COUNT(backward_chain);
    program->queue_count = COUNT(queues);
    program->op_count = RP_TEST_OPS;
    program->wait_count = COUNT(waits);
    program->buffer_count = COUNT(buffers);
    RP_TRY(COPY(program, stages));
    RP_TRY(COPY(program, forward_chain));
    RP_TRY(COPY(program, backward_chain));
    RP_TRY(COPY(program, queues));
    RP_TRY(COPY(program, ops));
    RP_TRY(COPY(program, waits));
    return COPY(program, buffers);
}

rp_status rp_test_make_program(rp_program **program_out)
{
    RP_TRY(rp_program_create(program_out));
    return fill(*program_out);
}

rp_status rp_test_make_timeline(const rp_program *program, rp_timeline **timeline_out)
{
    RP_TRY(rp_timeline_create(program, timeline_out));
    for (uint32_t op = 0; op < RP_TEST_OPS; op++) {
        (*timeline_out)->start_ps[op] = times_ps[op][0];
        (*timeline_out)->end_ps[op] = times_ps[op][1];
    }
    return RP_OK;
}

const char *rp_test_make_folder(void)
{
    static char folder[64];
    strcpy(folder, "/tmp/rp-test-XXXXXX");
    return mkdtemp(folder);
}

size_t rp_test_remove(const char *folder)
{
    size_t files = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            files++;
            unlink(rp_test_path(folder, entry->d_name));
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
    rmdir(folder);
    return files;
}

const char *rp_test_path(const char *folder, const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}
