/* Several processes that train together: the values that all must have alike, the data that they
 * get from process 0, and the results that it reports for all. */
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/cli/interrupt.h"
#include "common/inputs/data.h"
#include "exec/rpexec/train_internal.h"

#include <inttypes.h>
#include <string.h>

#define MOST_FILE_BYTES ((size_t)64 << 20) /* of descriptions: models, platforms, costs */

/* ---- the program ----------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t hash, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, count - i < sizeof word ? count - i : sizeof word);
        hash = rp_hash_add(hash, word);
    }
    return rp_hash_add(hash, count);
}

static rp_status hash_file(const char *path, size_t most, uint64_t *hash_inout)
{
    rp_text text = {0};
    rp_status status = rp_text_read_file(path, most, &text);
    if (status == RP_OK) {
        *hash_inout = hash_bytes(*hash_inout, text.bytes, text.length);
    }
    rp_text_fini(&text);
    return status;
}

/* Describes the build, since builds with different compilers differ in the last digits. A commit
 * does not tell the changes of a tree that differed from it: then the program's own bytes do. */
static rp_status describe_build(rp_arena *arena, const char **text_out)
{
    const char *commit = rp_commit();
    uint64_t hash = RP_HASH_SEED;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    static const char kind[] = "sanitized";
#elif defined(__OPTIMIZE__)
    static const char kind[] = "optimised";
#else
    static const char kind[] = "not optimised";
#endif
    if (strlen(commit) != 40) {
        RP_TRY(hash_file("/proc/self/exe", SIZE_MAX, &hash));
    }
    return rp_arena_print(arena, text_out, "rpexec %s (commit %s, compiler %.20s, %s, %" PRIx64 ")",
                          rp_version(), commit, __VERSION__, kind, hash);
}

rp_status rpexec_train_together(rpexec_options *options, const rpexec_launch *launch,
                                rp_arena *arena, rpexec_outcome *outcome_out)
{
    rpexec_processes *processes = NULL;
    rpexec_processes_config config = {.bits_per_s = 8e9 * options->network_gb_per_s,
                                      .patience_s = rpexec_patience_s(options)};
    if (launch->count > 1) {
        RP_TRY(describe_build(arena, &config.build));
        RP_TRY(rpexec_processes_open(launch, &config, &processes));
    }
    rp_status status = rpexec_train(options, arena, processes, outcome_out);
    rp_status left = rpexec_processes_close(processes, status == RP_OK || status == RP_INTERRUPTED);
    return status == RP_OK ? left : status;
}

/* ---- comparison ------------------------------------------------------------------------------ */

/* Adds a line that is compared: a name, a tab, a value. */
static rp_status add_line(rp_text *text, const char *name, const char *value)
{
    RP_TRY(rp_text_print(text, "%s\t", name));
    size_t begin = text->length;
    RP_TRY(rp_text_append(text, value, strlen(value)));
    for (char *c = text->bytes + begin; *c != '\0'; c++) {
        *c = *c == '\n' || *c == '\t' ? ' ' : *c;
    }
    return rp_text_append(text, "\n", 1);
}

static rp_status add_hash(rp_text *text, const char *name, const char *what, uint64_t hash)
{
    char value[64];
    (void)snprintf(value, sizeof value, "%s of hash %016" PRIx64, what, hash);
    return add_line(text, name, value);
}

/* The two lines at `a`, process 0's, and `b` have the same name: the build is the same. */
static void log_line(const rpexec_trainer *t, const char *a, const char *b, uint32_t other,
                     uint32_t more)
{
    size_t name = strcspn(a, "\t");
    const char *ours = a + name + 1;
    const char *theirs = b + strcspn(b, "\t") + 1;
    char rest[48] = "";
    if (more > 0) {
        (void)snprintf(rest, sizeof rest, ", and %" PRIu32 " more differ from process 0", more);
    }
    rp_log_error("%.*s: process 0 of %" PRIu32 " has %.*s, process %" PRIu32
                 " has %.*s%s; valid is the same in all processes",
                 (int)name, a, rpexec_processes_count(t->processes), (int)strcspn(ours, "\n"), ours,
                 other, (int)strcspn(theirs, "\n"), theirs, rest);
}

/* @param texts [processes] lines of each
 * @return lines in which a process differs from process 0; each is logged */
static uint32_t log_differences(const rpexec_trainer *t, char *const *texts, rp_arena *arena,
                                rp_status *status_out)
{
    uint32_t count = rpexec_processes_count(t->processes);
    uint32_t differences = 0;
    const char **at = NULL;
    *status_out = rp_arena_alloc(arena, count, sizeof *at, &at);
    for (uint32_t i = 0; *status_out == RP_OK && i < count; i++) {
        at[i] = texts[i];
    }
    while (*status_out == RP_OK && *at[0] != '\0') {
        size_t length = strcspn(at[0], "\n");
        uint32_t first = 0;
        uint32_t others = 0;
        for (uint32_t i = 1; i < count; i++) {
            bool same = strcspn(at[i], "\n") == length && strncmp(at[i], at[0], length) == 0;
            first = !same && first == 0 ? i : first;
            others += same ? 0 : 1;
        }
        if (others > 0) {
            log_line(t, at[0], at[first], first, others - 1);
            differences++;
        }
        for (uint32_t i = 0; i < count; i++) {
            at[i] += strcspn(at[i], "\n");
            at[i] += *at[i] == '\n' ? 1 : 0;
        }
    }
    return differences;
}

/* Process 0 gets the lines of all processes, logs the differences, and tells all whether they go
 * on. */
static rp_status compare_in(const rpexec_trainer *t, const rp_text *own, rp_arena *arena)
{
    uint32_t count = rpexec_processes_count(t->processes);
    uint32_t rank = rpexec_processes_rank(t->processes);
    char **texts = NULL;
    uint32_t differences = 0;
    rp_status status = RP_OK;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *texts, &texts));
    for (uint32_t root = 0; root < count; root++) {
        uint64_t length = own->length;
        RP_TRY(rpexec_processes_share(t->processes, root, &length, sizeof length));
        RP_TRY(rp_arena_alloc(arena, length + 1, 1, &texts[root]));
        if (root == rank) {
            memcpy(texts[root], own->bytes, length);
        }
        RP_TRY(rpexec_processes_share(t->processes, root, texts[root], length));
    }
    if (rank == 0) {
        differences = log_differences(t, texts, arena, &status);
        RP_TRY(status);
    }
    RP_TRY(rpexec_processes_share(t->processes, 0, &differences, sizeof differences));
    if (differences == 0) {
        return RP_OK;
    }
    rpexec_processes_part(t->processes);
    (void)rpexec_processes_meet(t->processes); /* all know it before any leaves */
    return RP_USAGE;
}

static rp_status compare(const rpexec_trainer *t, const rp_text *own)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = compare_in(t, own, arena);
    rp_arena_destroy(arena);
    return status;
}

/* Adds the value of an option as reports show it, or whether it was given. */
static rp_status add_option(const rpexec_trainer *t, const rp_option *row, rp_text *text)
{
    char name[64];
    char value[4096] = "";
    bool flag = false;
    const char *path = NULL;
    const char *member = (const char *)t->o + row->to.offset;
    (void)snprintf(name, sizeof name, "--%s", row->name);
    if (row->kind == RP_OPTION_FLAG || row->elsewhere) {
        memcpy(row->elsewhere ? (void *)&path : (void *)&flag, member, row->to.size);
        return add_line(text, name, flag || path != NULL ? "it" : "not got it");
    }
    rp_json json;
    FILE *stream = fmemopen(value, sizeof value - 1, "w");
    if (stream == NULL) {
        rp_log_error("%s: no room for its value", name);
        return RP_NO_MEMORY;
    }
    rp_json_begin_document(&json, stream, 0);
    rp_options_write_value(rpexec_setup_keys(), t->o, row, &json);
    (void)fclose(stream);
    return add_line(text, name, value);
}

rp_status rpexec_trainer_compare_options(const rpexec_trainer *t)
{
    rp_text text = {0};
    rp_status status = RP_OK;
    if (t->processes == NULL) {
        return RP_OK;
    }
    for (uint32_t i = 0; status == RP_OK && i < rpexec_setup_keys()->row_count; i++) {
        const rp_option *row = &rpexec_setup_keys()->rows[i];
        status = row->own || row->output ? RP_OK : add_option(t, row, &text);
    }
    status = status == RP_OK ? compare(t, &text) : status;
    rp_text_fini(&text);
    return status;
}

/* Adds the file that describes a model or a platform; some are described by a name. */
static rp_status add_described(rp_text *text, const char *option, const rp_data_kind *kind,
                               const char *name, rp_arena *arena)
{
    const char *path = NULL;
    uint64_t hash = RP_HASH_SEED;
    if (strncmp(name, "gpt:", 4) == 0 || strcmp(name, "detect") == 0) {
        return add_line(text, option, name);
    }
    RP_TRY(rp_data_path(kind, name, arena, &path));
    RP_TRY(hash_file(path, MOST_FILE_BYTES, &hash));
    return add_hash(text, option, "a file", hash);
}

static rp_status add_files(const rpexec_trainer *t, rp_text *text)
{
    const rpexec_options *o = t->o;
    uint64_t hash = RP_HASH_SEED;
    if (t->origin.config != NULL) {
        RP_TRY(hash_file(t->origin.config, MOST_FILE_BYTES, &hash));
        RP_TRY(add_hash(text, o->weights != NULL ? "--weights" : "--model", "a config.json", hash));
    } else {
        RP_TRY(add_described(text, "--model", &rp_data_models, o->model, t->arena));
    }
    if (o->platform != NULL) {
        RP_TRY(add_described(text, "--platform", &rp_data_platforms, o->platform, t->arena));
    }
    hash = RP_HASH_SEED;
    if (o->costs != NULL) {
        RP_TRY(hash_file(t->prediction.costs_path, MOST_FILE_BYTES, &hash));
        RP_TRY(hash_file(t->prediction.platform_path, MOST_FILE_BYTES, &hash));
        RP_TRY(add_hash(text, "--costs", "a record", hash));
    }
    return RP_OK;
}

static rp_status add_inputs(const rpexec_trainer *t, rp_text *text)
{
    const char *words = NULL;
    const char *weights = t->o->weights != NULL ? "--weights" : "the initial weights";
    RP_TRY(add_files(t, text));
    RP_TRY(rp_arena_print(t->arena, &words, "adapters of rank %" PRIu32 " and alpha %.9g",
                          t->config.lora_rank, t->config.lora_alpha));
    RP_TRY(add_line(text, weights, words));
    RP_TRY(add_line(text, "--data", t->progress.data));
    RP_TRY(rpexec_tokens_identity(&t->evaluated, t->arena, &words));
    RP_TRY(add_line(text, "--eval-data", words));
    RP_TRY(rp_partition_text(&t->partition, t->arena, &words));
    RP_TRY(add_line(text, "--partition", words));
    return add_hash(text, weights, "weights", rpexec_state_hash(&t->state));
}

rp_status rpexec_trainer_compare_inputs(const rpexec_trainer *t)
{
    rp_text text = {0};
    if (t->processes == NULL) {
        return RP_OK;
    }
    rp_status status = add_inputs(t, &text);
    status = status == RP_OK ? compare(t, &text) : status;
    rp_text_fini(&text);
    return status;
}

/* ---- training -------------------------------------------------------------------------------- */

rp_status rpexec_trainer_share_state(rpexec_trainer *t)
{
    rpexec_state *s = &t->state;
    uint64_t trained = s->trained[t->model.layer_count] * sizeof(float);
    const struct {
        void *array;
        uint64_t bytes;
    } parts[] = {{s->working, s->offsets[t->model.layer_count] * rp_dtype_bytes(t->model.dtype)},
                 {s->master, trained},
                 {s->m, trained},
                 {s->v, trained},
                 {&s->step, sizeof s->step},
                 {&s->skipped, sizeof s->skipped},
                 {&s->scaler, sizeof s->scaler},
                 {&t->progress.place, sizeof t->progress.place}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        RP_TRY(rpexec_processes_share(t->processes, 0, parts[i].array, parts[i].bytes));
    }
    return RP_OK;
}

rp_status rpexec_trainer_look_for_signal(rpexec_trainer *t)
{
    t->signal = rp_interrupt_signal();
    return t->processes == NULL
               ? RP_OK
               : rpexec_processes_share(t->processes, 0, &t->signal, sizeof t->signal);
}

/* Sums go as doubles, which are exact below 2^53. */
rp_status rpexec_trainer_add_bytes(const rpexec_trainer *t)
{
    rpexec_outcome *out = t->outcome;
    uint64_t *const bytes[] = {&out->uploaded_bytes, &out->downloaded_bytes, &out->exchanged_bytes,
                               &out->network_bytes};
    double all[RPEXEC_MAX_PROCESSES];
    if (t->processes == NULL) {
        return RP_OK;
    }
    out->network_bytes = rpexec_processes_sent_bytes(t->processes) - t->sent_before;
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        double sum = 0;
        RP_TRY(rpexec_processes_gather(t->processes, RPEXEC_TAG_END, (double)*bytes[i], all));
        for (uint32_t k = 0; k < rpexec_processes_count(t->processes); k++) {
            sum += all[k];
        }
        *bytes[i] = (uint64_t)sum;
    }
    return RP_OK;
}
