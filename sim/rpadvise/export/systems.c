#include "sim/rpadvise/export/systems.h"

#include "common/base/text.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"
#include "common/schedule/schedule_type.h"

#include <string.h>

/* ---- the table ------------------------------------------------------------------------------- */

/* Columns of the table, and the words that their cells may have: a single word, or a list. */
typedef enum column {
    SYSTEM,
    SCHEDULE,
    OPTIMIZER,
    PARTITION,
    RECOMPUTE,
    GRAIN,
    DTYPE,
    CALLS,
    BATCH,
    SERVERS,
    GPUS,
    WITHOUT,
    COLUMN_COUNT
} column;

#define LACK_WORD(name, word, text) word,
#define DTYPE_WORD(name, stored, text, alias, bytes) text,

static const char *const optimizers[] = {"sync", "any", NULL};
static const char *const partitions[] = {"any", "even", "fused", NULL};
static const char *const grains[] = {"layer", "any", NULL};
static const char *const dtypes[] = {RP_DTYPE_LIST(DTYPE_WORD) NULL};
static const char *const calls[] = {"any", "one", NULL};
static const char *const batches[] = {"any", "even", NULL};
static const char *const servers[] = {"any", "one", NULL};
static const char *const lacks[] = {RPADVISE_LACK_LIST(LACK_WORD) NULL};

static const struct {
    const char *header;
    const char *const *words; /* the allowed words; NULL: a name or a number */
    bool list;                /* words separated by blanks; an empty cell is valid */
} columns[COLUMN_COUNT] = {
    [SYSTEM] = {"system", NULL, false},
    [SCHEDULE] = {"schedule", NULL, false},
    [OPTIMIZER] = {"optimizer", optimizers, false},
    [PARTITION] = {"partition", partitions, false},
    [RECOMPUTE] = {"recompute", NULL, true},
    [GRAIN] = {"grain", grains, false},
    [DTYPE] = {"dtype", dtypes, true},
    [CALLS] = {"calls", calls, false},
    [BATCH] = {"batch", batches, false},
    [SERVERS] = {"servers", servers, false},
    [GPUS] = {"gpus", NULL, true},
    [WITHOUT] = {"without", lacks, true},
};

typedef struct table {
    rp_csv csv;
    uint32_t index[COLUMN_COUNT];
    rp_arena *arena;
} table;

static const char *cell(const table *t, uint32_t row, column c)
{
    return rp_csv_cell(&t->csv, row, t->index[c]);
}

static rp_status bad_word(const table *t, uint32_t row, column c, const char *valid)
{
    char shown[RP_CSV_SHOW_SIZE];
    rp_log_error_at(t->csv.name, t->csv.lines[row], "%s: '%s' is not valid; valid is %s",
                    columns[c].header, rp_csv_show(cell(t, row, c), shown), valid);
    return RP_INPUT;
}

static rp_status bad_of_words(const table *t, uint32_t row, column c)
{
    const char *valid = columns[c].list ? "a list of" : "one of";
    for (const char *const *word = columns[c].words; *word != NULL; word++) {
        RP_TRY(rp_arena_print(t->arena, &valid, "%s %s", valid, *word));
    }
    return bad_word(t, row, c, valid);
}

/* Reads the words of a cell as bits; a column that is no list has a single bit. */
static rp_status read_words(const table *t, uint32_t row, column c, uint32_t *bits_out)
{
    const char *at = cell(t, row, c);
    *bits_out = 0;
    for (size_t length = 0; *at != '\0'; at += length) {
        length = strcspn(at, " ");
        uint32_t word = 0;
        while (columns[c].words[word] != NULL &&
               (strlen(columns[c].words[word]) != length ||
                strncmp(columns[c].words[word], at, length) != 0)) {
            word++;
        }
        if (columns[c].words[word] == NULL || (!columns[c].list && *bits_out != 0)) {
            return bad_of_words(t, row, c);
        }
        *bits_out |= 1u << word;
        length += at[length] == ' ' ? 1 : 0;
    }
    return *bits_out != 0 || columns[c].list ? RP_OK : bad_of_words(t, row, c);
}

static rp_status read_recomputes(const table *t, uint32_t row, rpadvise_rule *rule)
{
    const char *at = cell(t, row, RECOMPUTE);
    for (size_t length = 0; *at != '\0'; at += length) {
        const char *word = NULL;
        rp_recompute recompute;
        length = strcspn(at, " ");
        RP_TRY(rp_arena_copy_text(t->arena, at, length, &word));
        if (!rp_recompute_parse(word, &recompute)) {
            return bad_word(t, row, RECOMPUTE, "a list of none wait early selective");
        }
        rule->recomputes[recompute] = true;
        length += at[length] == ' ' ? 1 : 0;
    }
    return RP_OK;
}

static rp_status read_names(const table *t, uint32_t row, rpadvise_rule *rule)
{
    rule->system = cell(t, row, SYSTEM);
    if (*rule->system == '\0') {
        return bad_word(t, row, SYSTEM, "a name");
    }
    if (*cell(t, row, GPUS) != '\0') {
        uint64_t gpus = 0;
        RP_TRY(rp_csv_u64(&t->csv, row, t->index[GPUS], 1, RP_MAX_GPUS, &gpus));
        rule->gpus = (uint32_t)gpus;
    }
    return RP_OK;
}

static rp_status read_rule(const table *t, uint32_t row, rpadvise_rule *rule)
{
    uint32_t bits[COLUMN_COUNT] = {0};
    RP_TRY(read_names(t, row, rule));
    RP_TRY(read_recomputes(t, row, rule));
    for (uint32_t c = 0; c < COLUMN_COUNT; c++) {
        if (columns[c].words != NULL) {
            RP_TRY(read_words(t, row, (column)c, &bits[c]));
        }
    }
    rule->asynchronous = bits[OPTIMIZER] == 1u << 1;
    rule->partitions = bits[PARTITION] == 1u   ? RPADVISE_PARTITIONS_ANY
                       : bits[PARTITION] == 2u ? RPADVISE_PARTITIONS_EVEN
                                               : RPADVISE_PARTITIONS_FUSED;
    rule->stage_grain = bits[GRAIN] == 1u << 1;
    for (uint32_t i = 0; i < RP_DTYPE_COUNT; i++) {
        rule->dtypes[i] = (bits[DTYPE] >> i & 1) != 0;
    }
    rule->one_call = bits[CALLS] == 1u << 1;
    rule->even_batch = bits[BATCH] == 1u << 1;
    rule->one_server = bits[SERVERS] == 1u << 1;
    rule->lacking = bits[WITHOUT];
    return RP_OK;
}

static bool has_name(const rpadvise_systems *s, const char *name)
{
    for (uint32_t i = 0; i < s->name_count; i++) {
        if (strcmp(s->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* A schedule's name, all, or pipelines: with resident weights of a single version, and an order
 * that no other schedule has. */
static bool stands_for(const char *word, const rp_schedule_type *schedule)
{
    bool pipeline = schedule->traits.placement == RP_PLACEMENT_RESIDENT &&
                    schedule->traits.versions == RP_VERSIONS_ONE && schedule->published_as == NULL;
    return strcmp(word, schedule->name) == 0 || strcmp(word, "all") == 0 ||
           (pipeline && strcmp(word, "pipelines") == 0);
}

/* Adds a rule for each schedule of the row that the system does not have yet. */
static rp_status add_rules(const table *t, uint32_t row, rpadvise_rule *rules, rpadvise_systems *s)
{
    rpadvise_rule rule = {0};
    bool known = false;
    uint32_t before = s->rule_count;
    RP_TRY(read_rule(t, row, &rule));
    bool asynchronous = rule.asynchronous;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        if (stands_for(cell(t, row, SCHEDULE), rp_schedules[i])) {
            known = true;
            rule.schedule = rp_schedules[i]->name;
            rule.asynchronous =
                asynchronous && rp_traits_only_synchronous(&rp_schedules[i]->traits) == NULL;
            if (rpadvise_systems_rule(s, rule.system, rule.schedule) == NULL) {
                rules[s->rule_count++] = rule;
            }
        }
    }
    if (s->rule_count == before) {
        return bad_word(t, row, SCHEDULE,
                        known ? "a schedule that the system does not have yet"
                              : "a schedule (rpsim --list schedules), pipelines or all");
    }
    if (!has_name(s, rule.system)) {
        s->names[s->name_count++] = rule.system;
    }
    return RP_OK;
}

static rp_status read_rules(const table *t, rpadvise_systems *s)
{
    rpadvise_rule *rules = NULL;
    size_t most = (size_t)t->csv.rows * rp_schedule_count;
    RP_TRY(rp_arena_alloc(t->arena, most, sizeof *rules, &rules));
    RP_TRY(rp_arena_alloc(t->arena, t->csv.rows, sizeof *s->names, &s->names));
    s->rules = rules;
    for (uint32_t row = 0; row < t->csv.rows; row++) {
        RP_TRY(add_rules(t, row, rules, s));
    }
    return RP_OK;
}

rp_status rpadvise_systems_parse(const char *name, const char *bytes, size_t length,
                                 rp_arena *arena, rpadvise_systems *systems_out)
{
    table t = {.arena = arena};
    *systems_out = (rpadvise_systems){0};
    RP_TRY(rp_csv_parse(name, bytes, length, ',', arena, &t.csv));
    for (uint32_t c = 0; c < COLUMN_COUNT; c++) {
        RP_TRY(rp_csv_column(&t.csv, columns[c].header, &t.index[c]));
    }
    return read_rules(&t, systems_out);
}

rp_status rpadvise_systems_load(rp_arena *arena, rpadvise_systems *systems_out)
{
    const char *path = NULL;
    rp_text text = {0};
    rp_status status =
        rp_data_read_file("configs/systems.csv", RP_CSV_MAX_BYTES, arena, &path, &text);
    if (status == RP_OK) {
        status = rpadvise_systems_parse(path, text.bytes, text.length, arena, systems_out);
    }
    rp_text_fini(&text);
    return status;
}

rp_status rpadvise_systems_require(const rpadvise_systems *systems, const char *system)
{
    if (has_name(systems, system)) {
        return RP_OK;
    }
    rp_text valid = {0};
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < systems->name_count && status == RP_OK; i++) {
        status = rp_text_print(&valid, "%s%s", i == 0 ? "" : ", ", systems->names[i]);
    }
    if (status == RP_OK) {
        rp_log_error("{runnable}: there is no system '%s'; valid values are %s", system,
                     valid.bytes);
        status = RP_USAGE;
    }
    rp_text_fini(&valid);
    return status;
}

const rpadvise_rule *rpadvise_systems_rule(const rpadvise_systems *systems, const char *system,
                                           const char *schedule)
{
    for (uint32_t i = 0; i < systems->rule_count; i++) {
        const rpadvise_rule *rule = &systems->rules[i];
        if (strcmp(rule->system, system) == 0 && strcmp(rule->schedule, schedule) == 0) {
            return rule;
        }
    }
    return NULL;
}

/* ---- a row and its conditions ---------------------------------------------------------------- */

rpadvise_layout rpadvise_layout_of(const rpsim_row *row)
{
    const rp_resolved *w = &row->run;
    const rp_traits *traits = &row->run.schedule->traits;
    bool cuts = rp_cuts_layers(traits);
    bool replicas = rp_is_data_parallel(traits) && !cuts;
    uint32_t gpus = row->run.gpus;
    /* Microbatches of all GPUs that have their own. */
    uint32_t units = w->decided.accumulate * w->decided.microbatches;
    uint32_t ranks = cuts || replicas ? gpus : 1;
    uint32_t slices = w->sequence_slices > 1 ? w->sequence_slices : 1;
    rpadvise_layout l = {
        .gpus = gpus,
        .tensor = cuts ? gpus : 1,
        .pipeline = cuts || replicas ? 1 : gpus,
        .data = replicas ? gpus : 1,
        .stages = cuts || replicas ? 1 : row->run.partition->forward_count,
        .batch = w->global_batch / slices,
        .calls = w->decided.accumulate,
    };
    l.microbatches = units / ranks > 0 ? units / ranks : 1;
    uint32_t parts = l.microbatches * l.data;
    l.size = l.batch / parts + (l.batch % parts != 0 ? 1 : 0);
    l.even = units % ranks == 0 && w->global_batch % units == 0 && w->global_batch % slices == 0 &&
             l.batch % parts == 0;
    return l;
}

static bool has_even_stages(const rp_partition *p)
{
    for (uint32_t i = 1; i < p->forward_count; i++) {
        if (p->forward_layers[i] != p->forward_layers[0]) {
            return false;
        }
    }
    return true;
}

static bool is_fused(const rp_partition *p, uint32_t layers)
{
    uint32_t sum = p->backward_count != 0 ? p->backward_layers[0] : 0;
    for (uint32_t i = 0; i < p->forward_count; i++) {
        sum += p->forward_layers[i];
    }
    return p->backward_count != 0 && sum == layers;
}

static bool has_trait(const rp_model *m, rpadvise_lack lack)
{
    switch (lack) {
    case RPADVISE_LACK_ADAPTERS:
        return m->lora_rank != 0;
    case RPADVISE_LACK_SINKS:
        return m->attention_bias;
    case RPADVISE_LACK_EXPERT_BIASES:
        return m->expert_bias;
    case RPADVISE_LACK_LINEAR_BIASES:
        return m->linear_bias;
    case RPADVISE_LACK_LEARNED_POSITIONS:
        return m->learned_positions;
    case RPADVISE_LACK_LAYER_NORM:
        return m->layer_norm;
    case RPADVISE_LACK_PLAIN_MLP:
        return m->plain_mlp;
    case RPADVISE_LACK_SLIDING_WINDOW:
        return m->sliding_window != 0;
    case RPADVISE_LACK_ROPE_SCALING:
        return strcmp(m->rope_scaling, "none") != 0 && strcmp(m->rope_scaling, "llama3") != 0;
    case RPADVISE_LACK_QKV_BIASES:
        return m->qkv_bias;
    case RPADVISE_LACK_OTHER_BIASES:
        return m->output_bias || m->mlp_bias || m->router_bias;
    case RPADVISE_LACK_OTHER_NORMS:
        return m->four_norms || m->one_norm || m->wide_qk_norm;
    case RPADVISE_LACK_LATENT_ATTENTION:
        return m->kv_rank != 0;
    case RPADVISE_LACK_SHARED_EXPERTS:
        return m->shared_intermediate != 0;
    case RPADVISE_LACK_MIXED_LAYERS:
        return m->kinds != NULL;
    case RPADVISE_LACK_TYPES:
        return m->frozen != RP_FROZEN_DTYPE || m->fp8_products;
    case RPADVISE_LACK_COUNT:
        break;
    }
    return false;
}

static const char *model_refusal(const rpadvise_rule *rule, const rp_model *model)
{
#define LACK_TEXT(name, word, text) text,
    static const char *const texts[] = {RPADVISE_LACK_LIST(LACK_TEXT)};
    for (uint32_t i = 0; i < RPADVISE_LACK_COUNT; i++) {
        if ((rule->lacking >> i & 1) != 0 && has_trait(model, (rpadvise_lack)i)) {
            return texts[i];
        }
    }
    return NULL;
}

static const char *order_refusal(const rpadvise_rule *rule, const rpsim_row *row)
{
    const rp_partition *p = row->run.partition;
    if (row->run.decided.asynchronous && !rule->asynchronous) {
        return "it has a synchronous optimizer only";
    }
    if (rule->partitions == RPADVISE_PARTITIONS_EVEN && !has_even_stages(p)) {
        return "it gives all stages the same number of layers";
    }
    if (rule->partitions == RPADVISE_PARTITIONS_FUSED && !is_fused(p, row->run.layers)) {
        return "it begins the head's backward stage where the forward ends";
    }
    if (!rule->recomputes[row->run.recompute]) {
        return row->run.recompute == RP_RECOMPUTE_NONE ? "it always recomputes"
               : row->run.recompute == RP_RECOMPUTE_SELECTIVE
                   ? "it recomputes whole layers or nothing"
                   : "it recomputes once the gradient has come, never before";
    }
    if (rp_recompute_has_ops(row->run.recompute) && !row->run.decided.layer_grain &&
        !rule->stage_grain) {
        return "it recomputes layer by layer";
    }
    return NULL;
}

static const char *size_refusal(const rpadvise_rule *rule, const rpsim_row *row)
{
#define DTYPE_REFUSAL(name, stored, text, alias, bytes) "it does not train in " text,
    static const char *const no_dtype[] = {RP_DTYPE_LIST(DTYPE_REFUSAL)};
#undef DTYPE_REFUSAL
    const rpadvise_layout l = rpadvise_layout_of(row);
    if (!rule->dtypes[row->run.decided.dtype]) {
        return no_dtype[row->run.decided.dtype];
    }
    const rp_types *types = &row->run.decided.types;
    bool usual = types->states == RP_STATES_F32 && types->master == RP_MASTER_F32;
    if (!usual && (rule->lacking >> RPADVISE_LACK_TYPES & 1) != 0) {
        return "its moments and masters are fp32";
    }
    if (rule->one_call && l.calls > 1) {
        return "it has one call of forward and backward in a step";
    }
    if (rule->even_batch && !l.even) {
        return "it gives all microbatches and ranks the same number of sequences";
    }
    if (rule->one_server && row->platform->nodes > 1) {
        return "it runs inside one server";
    }
    if (rp_layout_gpus(&row->run.decided.layout) > 1) {
        return "copies of a pipeline and GPUs that share a layer are not exported";
    }
    if (rule->gpus != 0 && l.gpus > rule->gpus) {
        return "it runs on fewer GPUs";
    }
    return NULL;
}

bool rpadvise_runs(const rpadvise_systems *systems, const char *system, const rpsim_row *row,
                   const char **why_out)
{
    const rpadvise_rule *rule = row->run.schedule != NULL
                                    ? rpadvise_systems_rule(systems, system, row->schedule_name)
                                    : NULL;
    const char *why = rule == NULL ? "it has no such schedule" : order_refusal(rule, row);
    why = why == NULL && row->run.decided.offload_activations
              ? "its files do not offload activations"
              : why;
    why = why == NULL ? size_refusal(rule, row) : why;
    why = why == NULL ? model_refusal(rule, row->run.model) : why;
    *why_out = why;
    return why == NULL;
}
