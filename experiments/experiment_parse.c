/* Reads an experiment from YAML. The reader uses libyaml's documents, whose nodes know their lines.
 */
#include "common/base/log.h"
#include "experiments/experiment_internal.h"

#include <string.h>

/* An experiment is at most five levels deep, and needs no anchors by the hundred. */
#define MOST_DEPTH 16u
#define MOST_ANCHORS 100u

static yaml_node_t *node_at(rpsweep_reader *in, int index)
{
    return yaml_document_get_node(&in->document, index);
}

/* ---- names of options ------------------------------------------------------------------------ */

/* Options that rpsweep itself decides, and options that give no run. */
static const char *const REFUSED[] = {
    "help",          "version",    "list",        "flows",
    "format",        "explain",    "db",          "db-ops",
    "trace-out",     "gantt-out",  "program-out", "torch-csv-out",
    "torch-sidecar", "chakra-out", "loss-out",    "save",
    "resume",        "record",
};

/* Further options of rpsim that give no run, or that write files. */
static const char *const REFUSED_OF_RPSIM[] = {
    "check",          "platform-out",     "html-out",
    "timeline-out",   "gantt-iterations", "torch-csv-dialect",
    "recv-placement", "chakra-host-ops",
};

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static rp_status option_name(rpsweep_reader *in, const yaml_node_t *node, const char **option_out)
{
    RP_TRY(rpsweep_scalar_text(in, node, RPSWEEP_MOST_NAME_BYTES, option_out));
    const char *name = *option_out;
    if (!in->experiment->executed && rpsweep_is_change(name)) {
        return RP_OK; /* rpsim --set knows the keys */
    }
    if (name[0] < 'a' || name[0] > 'z' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name)) {
        rp_log_error_at(in->experiment->file, rpsweep_line_of(node),
                        "'%s' is no option; valid are long options without --, as gpus", name);
        return RP_INPUT;
    }
    if (is_among(name, REFUSED, sizeof REFUSED / sizeof REFUSED[0]) ||
        (!in->experiment->executed &&
         is_among(name, REFUSED_OF_RPSIM, sizeof REFUSED_OF_RPSIM / sizeof REFUSED_OF_RPSIM[0]))) {
        rp_log_error_at(in->experiment->file, rpsweep_line_of(node),
                        "--%s has no place in an experiment: rpsweep stores every run; valid are "
                        "options that say what is run",
                        name);
        return RP_INPUT;
    }
    if (strcmp(name, "seed") == 0) {
        return rpsweep_refuse(in, node,
                              "the seed of points is the experiment's; valid is the key seed "
                              "beside options");
    }
    return RP_OK;
}

static rp_status expect_mapping(const rpsweep_reader *in, const yaml_node_t *node, const char *what)
{
    if (node->type == YAML_MAPPING_NODE) {
        return RP_OK;
    }
    rp_log_error_at(in->experiment->file, rpsweep_line_of(node), "expected a mapping of %s", what);
    return RP_INPUT;
}

/* ---- the parts of the file ------------------------------------------------------------------- */

static rp_status read_base(rpsweep_reader *in, yaml_node_t *node)
{
    rpsweep_choice *base = &in->experiment->base;
    RP_TRY(expect_mapping(in, node, "options"));
    RP_TRY(rp_arena_alloc(in->arena, rpsweep_pair_count(node), sizeof *base->settings,
                          &base->settings));
    for (uint32_t i = 0; i < rpsweep_pair_count(node); i++) {
        yaml_node_t *key = NULL;
        yaml_node_t *value = NULL;
        rpsweep_setting *s = &base->settings[base->count++];
        RP_TRY(rpsweep_pair_at(in, node, i, &key, &value));
        RP_TRY(option_name(in, key, &s->option));
        RP_TRY(rpsweep_option_value(in, value, &s->value));
        s->line = rpsweep_line_of(value);
    }
    return RP_OK;
}

static rp_status read_cross(rpsweep_reader *in, yaml_node_t *node)
{
    rpsweep_experiment *e = in->experiment;
    RP_TRY(expect_mapping(in, node, "options and their values"));
    for (uint32_t i = 0; i < rpsweep_pair_count(node); i++) {
        yaml_node_t *key = NULL;
        yaml_node_t *value = NULL;
        const char *option = NULL;
        const char **values = NULL;
        rpsweep_dimension *d = &e->dimensions[e->dimension_count++];
        RP_TRY(rpsweep_pair_at(in, node, i, &key, &value));
        RP_TRY(option_name(in, key, &option));
        RP_TRY(rpsweep_alternatives(in, value, &values, &d->count));
        RP_TRY(rp_arena_alloc(in->arena, d->count, sizeof *d->choices, &d->choices));
        for (uint32_t k = 0; k < d->count; k++) {
            rpsweep_choice *choice = &d->choices[k];
            RP_TRY(rp_arena_alloc(in->arena, 1, sizeof *choice->settings, &choice->settings));
            choice->settings[0] = (rpsweep_setting){option, values[k], rpsweep_line_of(value)};
            choice->count = 1;
        }
    }
    return RP_OK;
}

/* An entry of `list`: options, each with its values. */
typedef struct entry {
    uint32_t count;
    const char **options;
    const char ***values;
    uint32_t *value_counts;
    uint32_t *lines;
    uint64_t combinations;
} entry;

static rp_status read_entry(rpsweep_reader *in, yaml_node_t *node, entry *e)
{
    RP_TRY(expect_mapping(in, node, "options"));
    *e = (entry){.count = rpsweep_pair_count(node), .combinations = 1};
    RP_TRY(rp_arena_alloc(in->arena, e->count, sizeof *e->options, &e->options));
    RP_TRY(rp_arena_alloc(in->arena, e->count, sizeof *e->values, &e->values));
    RP_TRY(rp_arena_alloc(in->arena, e->count, sizeof *e->value_counts, &e->value_counts));
    RP_TRY(rp_arena_alloc(in->arena, e->count, sizeof *e->lines, &e->lines));
    for (uint32_t i = 0; i < e->count; i++) {
        yaml_node_t *key = NULL;
        yaml_node_t *value = NULL;
        RP_TRY(rpsweep_pair_at(in, node, i, &key, &value));
        RP_TRY(option_name(in, key, &e->options[i]));
        RP_TRY(rpsweep_alternatives(in, value, &e->values[i], &e->value_counts[i]));
        e->lines[i] = rpsweep_line_of(value);
        e->combinations *= e->value_counts[i];
        if (e->combinations > RPSWEEP_MOST_VALUES) {
            return rpsweep_refuse(in, node, "an entry of more than 1000000 combinations");
        }
    }
    return RP_OK;
}

/* Combination `number` of an entry; its last option varies fastest. */
static rp_status entry_choice(rpsweep_reader *in, const entry *e, uint64_t number,
                              rpsweep_choice *choice)
{
    RP_TRY(rp_arena_alloc(in->arena, e->count, sizeof *choice->settings, &choice->settings));
    choice->count = e->count;
    for (uint32_t i = e->count; i-- > 0;) {
        uint64_t which = number % e->value_counts[i];
        number /= e->value_counts[i];
        choice->settings[i] = (rpsweep_setting){e->options[i], e->values[i][which], e->lines[i]};
    }
    return RP_OK;
}

static rp_status expect_list(const rpsweep_reader *in, const yaml_node_t *node, uint32_t *count_out)
{
    *count_out = 0;
    if (node->type == YAML_SEQUENCE_NODE) {
        const yaml_node_item_t *items = node->data.sequence.items.start;
        *count_out = (uint32_t)(node->data.sequence.items.top - items);
    }
    return *count_out > 0 ? RP_OK
                          : rpsweep_refuse(in, node, "expected a list of at least one entry");
}

static rp_status read_list(rpsweep_reader *in, yaml_node_t *node)
{
    rpsweep_experiment *e = in->experiment;
    uint32_t count = 0;
    entry *entries = NULL;
    uint64_t choices = 0;
    RP_TRY(expect_list(in, node, &count));
    RP_TRY(rp_arena_alloc(in->arena, count, sizeof *entries, &entries));
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(read_entry(in, node_at(in, node->data.sequence.items.start[i]), &entries[i]));
        choices += entries[i].combinations;
    }
    if (choices > RPSWEEP_MOST_VALUES) {
        return rpsweep_refuse(in, node, "a list of more than 1000000 combinations");
    }
    rpsweep_dimension *d = &e->dimensions[e->dimension_count++];
    RP_TRY(rp_arena_alloc(in->arena, choices, sizeof *d->choices, &d->choices));
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t k = 0; k < entries[i].combinations; k++) {
            RP_TRY(entry_choice(in, &entries[i], k, &d->choices[d->count++]));
        }
    }
    return RP_OK;
}

/* ---- conditions ------------------------------------------------------------------------------ */

static rpsweep_relation relation_of(const char **value)
{
    static const struct {
        const char *text;
        rpsweep_relation relation;
    } RELATIONS[] = {{"<=", RPSWEEP_AT_MOST},
                     {">=", RPSWEEP_AT_LEAST},
                     {"<", RPSWEEP_LESS},
                     {">", RPSWEEP_MORE}};
    for (size_t i = 0; *value != NULL && i < sizeof RELATIONS / sizeof RELATIONS[0]; i++) {
        size_t length = strlen(RELATIONS[i].text);
        if (strncmp(*value, RELATIONS[i].text, length) == 0) {
            *value += length;
            *value += strspn(*value, " ");
            return RELATIONS[i].relation;
        }
    }
    return RPSWEEP_EQUAL;
}

static rp_status read_condition(rpsweep_reader *in, yaml_node_t *key, yaml_node_t *value,
                                rpsweep_condition *c)
{
    RP_TRY(option_name(in, key, &c->option));
    RP_TRY(rpsweep_alternatives(in, value, &c->values, &c->value_count));
    c->line = rpsweep_line_of(value);
    c->relation = relation_of(&c->values[0]);
    bool related = c->relation != RPSWEEP_EQUAL;
    if (related && (c->value_count != 1 || c->values[0][0] == '\0')) {
        return rpsweep_refuse(in, value, "bad comparison; valid is one, as <8 or >=gpus");
    }
    return RP_OK;
}

static rp_status read_rules(rpsweep_reader *in, yaml_node_t *node, rpsweep_rule **rules_out,
                            uint32_t *count_out)
{
    RP_TRY(expect_list(in, node, count_out));
    RP_TRY(rp_arena_alloc(in->arena, *count_out, sizeof **rules_out, rules_out));
    for (uint32_t i = 0; i < *count_out; i++) {
        yaml_node_t *entry_node = node_at(in, node->data.sequence.items.start[i]);
        rpsweep_rule *rule = &(*rules_out)[i];
        RP_TRY(expect_mapping(in, entry_node, "options and their values"));
        rule->count = rpsweep_pair_count(entry_node);
        if (rule->count == 0) {
            return rpsweep_refuse(in, entry_node, "an empty condition matches everything");
        }
        RP_TRY(rp_arena_alloc(in->arena, rule->count, sizeof *rule->conditions, &rule->conditions));
        for (uint32_t k = 0; k < rule->count; k++) {
            yaml_node_t *key = NULL;
            yaml_node_t *value = NULL;
            RP_TRY(rpsweep_pair_at(in, entry_node, k, &key, &value));
            RP_TRY(read_condition(in, key, value, &rule->conditions[k]));
        }
    }
    return RP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static rp_status read_program(rpsweep_reader *in, const yaml_node_t *node)
{
    const char *text = NULL;
    RP_TRY(rpsweep_scalar_text(in, node, RPSWEEP_MOST_NAME_BYTES, &text));
    in->experiment->executed = strcmp(text, "rpexec") == 0;
    if (!in->experiment->executed && strcmp(text, "rpsim") != 0) {
        rp_log_error_at(in->experiment->file, rpsweep_line_of(node),
                        "program '%s' is not valid; valid values are rpsim, rpexec", text);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status read_name(rpsweep_reader *in, const yaml_node_t *node)
{
    static const char valid[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-@";
    RP_TRY(rpsweep_scalar_text(in, node, RPSWEEP_MOST_NAME_BYTES, &in->experiment->name));
    if (strspn(in->experiment->name, valid) != strlen(in->experiment->name)) {
        return rpsweep_refuse(in, node, "bad name; valid are letters, digits and . _ + - @");
    }
    return RP_OK;
}

static rp_status read_numbers(rpsweep_reader *in, const yaml_node_t *key, const yaml_node_t *value)
{
    rpsweep_experiment *e = in->experiment;
    uint64_t number = 0;
    if (rpsweep_key_is(key, "repeats")) {
        RP_TRY(rpsweep_whole_number(in, value, 1, RPSWEEP_MOST_VALUES, &number));
        e->repeats = (uint32_t)number;
        return RP_OK;
    }
    e->seed_given = true;
    return rpsweep_whole_number(in, value, 0, UINT64_MAX / 2, &e->seed);
}

/* `program` is read first, because the list of refused options depends on it. */
static rp_status read_pair(rpsweep_reader *in, const yaml_node_t *key, yaml_node_t *value,
                           bool first)
{
    rpsweep_experiment *e = in->experiment;
    if (rpsweep_key_is(key, "program")) {
        return first ? read_program(in, value) : RP_OK;
    }
    if (first) {
        return RP_OK;
    }
    if (rpsweep_key_is(key, "name")) {
        return read_name(in, value);
    }
    if (rpsweep_key_is(key, "question")) {
        return rpsweep_scalar_text(in, value, RPSWEEP_MOST_VALUE_BYTES, &e->question);
    }
    if (rpsweep_key_is(key, "options")) {
        return read_base(in, value);
    }
    if (rpsweep_key_is(key, "cross")) {
        return RP_OK; /* read_dimensions */
    }
    if (rpsweep_key_is(key, "list")) {
        return RP_OK;
    }
    if (rpsweep_key_is(key, "exclude")) {
        return read_rules(in, value, &e->exclude, &e->exclude_count);
    }
    if (rpsweep_key_is(key, "only")) {
        return read_rules(in, value, &e->only, &e->only_count);
    }
    if (rpsweep_key_is(key, "repeats") || rpsweep_key_is(key, "seed")) {
        return read_numbers(in, key, value);
    }
    rp_log_error_at(e->file, rpsweep_line_of(key),
                    "unknown key '%s'; valid keys are name, question, program, options, cross, "
                    "list, exclude, only, repeats, seed",
                    (const char *)key->data.scalar.value);
    return RP_INPUT;
}

/* Reads `cross` before `list`, whatever their order in the file: the list overrides. */
static rp_status read_dimensions(rpsweep_reader *in, yaml_node_t *root)
{
    yaml_node_t *cross = NULL;
    yaml_node_t *list = NULL;
    for (uint32_t i = 0; i < rpsweep_pair_count(root); i++) {
        const yaml_node_pair_t *pair = &root->data.mapping.pairs.start[i];
        cross = rpsweep_key_is(node_at(in, pair->key), "cross") ? node_at(in, pair->value) : cross;
        list = rpsweep_key_is(node_at(in, pair->key), "list") ? node_at(in, pair->value) : list;
    }
    size_t most =
        1 + (cross != NULL && cross->type == YAML_MAPPING_NODE ? rpsweep_pair_count(cross) : 0);
    RP_TRY(rp_arena_alloc(in->arena, most, sizeof *in->experiment->dimensions,
                          &in->experiment->dimensions));
    if (cross != NULL) {
        RP_TRY(read_cross(in, cross));
    }
    return list != NULL ? read_list(in, list) : RP_OK;
}

static rp_status count_combinations(rpsweep_reader *in, const yaml_node_t *root)
{
    rpsweep_experiment *e = in->experiment;
    e->combinations = e->repeats;
    for (uint32_t i = 0; i < e->dimension_count; i++) {
        e->combinations *= e->dimensions[i].count;
        if (e->combinations > RPSWEEP_MAX_POINTS) {
            return rpsweep_refuse(in, root, "more than 100000000 combinations");
        }
    }
    return RP_OK;
}

static rp_status read_root(rpsweep_reader *in)
{
    rpsweep_experiment *e = in->experiment;
    yaml_node_t *root = yaml_document_get_root_node(&in->document);
    if (root == NULL) {
        rp_log_error_at(e->file, 1, "the file is empty; valid is an experiment");
        return RP_INPUT;
    }
    RP_TRY(expect_mapping(in, root, "an experiment's keys, as name, options, cross"));
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < rpsweep_pair_count(root); i++) {
            yaml_node_t *key = NULL;
            yaml_node_t *value = NULL;
            RP_TRY(rpsweep_pair_at(in, root, i, &key, &value));
            RP_TRY(read_pair(in, key, value, pass == 0));
        }
    }
    if (e->name == NULL) {
        return rpsweep_refuse(in, root, "the key name is missing");
    }
    RP_TRY(read_dimensions(in, root));
    return count_combinations(in, root);
}

static rp_status parser_failed(const rpsweep_reader *in, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR) {
        rp_log_error("out of memory for %s", in->experiment->file);
        return RP_NO_MEMORY;
    }
    rp_log_error_at(in->experiment->file, parser->problem_mark.line + 1, "bad YAML: %s",
                    parser->problem != NULL ? parser->problem : "not understood");
    return RP_INPUT;
}

/* Refuses a file that goes on after the experiment. */
static rp_status expect_end(const rpsweep_reader *in, yaml_parser_t *parser)
{
    yaml_document_t more;
    if (yaml_parser_load(parser, &more) == 0) {
        return parser_failed(in, parser);
    }
    const yaml_node_t *root = yaml_document_get_root_node(&more);
    rp_status status = root == NULL ? RP_OK : rpsweep_refuse(in, root, "a second document");
    yaml_document_delete(&more);
    return status;
}

/* Limits the number of directives, which stand before everything else: libyaml compares each with
 * all before it. */
static rp_status check_directives(const char *name, const char *bytes, size_t length)
{
    size_t line = 1;
    const char *end = bytes + length;
    for (const char *at = bytes; at < end; line++) {
        if (*at == '%') {
            rp_log_error_at(name, line, "a directive (%%); valid are files without");
            return RP_INPUT;
        }
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline != NULL ? newline + 1 : end;
    }
    return RP_OK;
}

/* The time that libyaml takes grows with the square of the depth and of the number of anchors. Deep
 * files and files with many anchors are therefore refused event by event, before libyaml makes a
 * document of them. */
static rp_status check_shape(const rpsweep_reader *in, yaml_parser_t *parser)
{
    uint32_t depth = 0;
    uint32_t anchors = 0;
    for (bool ended = false; !ended;) {
        yaml_event_t event;
        if (yaml_parser_parse(parser, &event) == 0) {
            return parser_failed(in, parser);
        }
        bool begins =
            event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        bool ends = event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        bool anchored =
            (event.type == YAML_SEQUENCE_START_EVENT && event.data.sequence_start.anchor != NULL) ||
            (event.type == YAML_MAPPING_START_EVENT && event.data.mapping_start.anchor != NULL) ||
            (event.type == YAML_SCALAR_EVENT && event.data.scalar.anchor != NULL);
        depth += begins ? 1 : 0;
        depth -= ends ? 1 : 0;
        anchors += anchored ? 1 : 0;
        ended = event.type == YAML_STREAM_END_EVENT;
        size_t line = event.start_mark.line + 1;
        yaml_event_delete(&event);
        if (depth > MOST_DEPTH || anchors > MOST_ANCHORS) {
            rp_log_error_at(in->experiment->file, line, "%s; valid are at most %u",
                            depth > MOST_DEPTH ? "lists and mappings too deep in each other"
                                               : "too many anchors",
                            depth > MOST_DEPTH ? MOST_DEPTH : MOST_ANCHORS);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

static rp_status check_text(const rpsweep_reader *in, const char *bytes, size_t length)
{
    yaml_parser_t parser;
    RP_TRY(check_directives(in->experiment->file, bytes, length));
    if (yaml_parser_initialize(&parser) == 0) {
        rp_log_error("out of memory for %s", in->experiment->file);
        return RP_NO_MEMORY;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, length);
    rp_status status = check_shape(in, &parser);
    yaml_parser_delete(&parser);
    return status;
}

rp_status rpsweep_experiment_parse(const char *name, const char *bytes, size_t length,
                                   rp_arena *arena, rpsweep_experiment *experiment_out)
{
    *experiment_out = (rpsweep_experiment){.file = name, .repeats = 1};
    rpsweep_reader in = {.arena = arena, .experiment = experiment_out};
    RP_TRY(rp_arena_copy_text(arena, bytes, length, &experiment_out->text));
    RP_TRY(check_text(&in, bytes, length));
    yaml_parser_t parser;
    if (yaml_parser_initialize(&parser) == 0) {
        rp_log_error("out of memory for %s", name);
        return RP_NO_MEMORY;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, length);
    if (yaml_parser_load(&parser, &in.document) == 0) {
        rp_status status = parser_failed(&in, &parser);
        yaml_parser_delete(&parser);
        return status;
    }
    rp_status status = read_root(&in);
    if (status == RP_OK) {
        status = expect_end(&in, &parser);
    }
    yaml_document_delete(&in.document);
    yaml_parser_delete(&parser);
    return status;
}
