/* check_published PAPER_DIR [CHECK_VALUES_CSV]
 * Compares the slow reference with the 25 published rows (8 GPUs, 16 microbatches) and with the
 * further check values. Exit status 0: all agree to 0.0006 ms; 1: some differ; 2: bad input. */
#include "tests/reference/slow_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 4096, MAX_FIELDS = 32, MAX_LAYERS = 256 };

static const int64_t TOLERANCE_PS = 600000; /* half of the last published digit, and rounding */

static const char *const SCHEDULES[] = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs",
                                        "roundpipe"};
static const char *const RECOMPUTES[] = {"none", "wait", "early"};

/* A configuration and the arrays to which it points. */
typedef struct check_case {
    slow_config config;
    int64_t fwd_ps[MAX_LAYERS], bwd_ps[MAX_LAYERS];
    int stage_layers[MAX_LAYERS], backward_layers[MAX_LAYERS];
} check_case;

static void check_fail(const char *what, const char *which)
{
    fprintf(stderr, "check_published: %s: %s\n", what, which);
    exit(2);
}

/* Splits a line in place. */
static int check_split(char *line, char separator, char **fields_out)
{
    int count = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *at = line; at != NULL;) {
        if (count == MAX_FIELDS) {
            check_fail("too many fields", line);
        }
        fields_out[count++] = at;
        at = strchr(at, separator);
        if (at != NULL) {
            *at++ = '\0';
        }
    }
    return count;
}

/* Decimal milliseconds to picoseconds, exactly. */
static int64_t check_ps(const char *text)
{
    char *end = NULL;
    int64_t ps = strtoll(text, &end, 10) * 1000000000;
    int64_t unit = 100000000;
    if (end == text) {
        check_fail("not a number", text);
    }
    if (*end == '.') {
        for (end++; *end >= '0' && *end <= '9' && unit > 0; end++) {
            ps += (*end - '0') * unit;
            unit /= 10;
        }
    }
    if (*end != '\0') {
        check_fail("not a number with at most 9 decimals", text);
    }
    return ps;
}

static int check_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    check_fail("unknown name", name);
    return -1;
}

static FILE *check_open(const char *folder, const char *name)
{
    char path[MAX_LINE];
    snprintf(path, sizeof path, "%s%s%s", folder, folder[0] == '\0' ? "" : "/", name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        check_fail("cannot open", path);
    }
    return file;
}

static void check_set_layers(check_case *c, int layers, int64_t fwd_ps, int64_t bwd_ps)
{
    if (layers < 0 || layers > MAX_LAYERS) {
        check_fail("layers", "out of range");
    }
    c->config.layers = layers;
    c->config.fwd_ps = c->fwd_ps;
    c->config.bwd_ps = c->bwd_ps;
    for (int i = 0; i < layers; i++) {
        c->fwd_ps[i] = fwd_ps;
        c->bwd_ps[i] = bwd_ps;
    }
}

/* model,layers,fwd_ms,bwd_ms,lmhead_fwd_ms,lmhead_bwd_ms,hop_ms,... */
static void check_load_costs(check_case *c, const char *folder, const char *model)
{
    FILE *file = check_open(folder, "layer_times_4090.csv");
    char line[MAX_LINE];
    char *field[MAX_FIELDS];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        found = check_split(line, ',', field) >= 7 && strcmp(field[0], model) == 0;
    }
    fclose(file);
    if (!found) {
        check_fail("no layer times", model);
    }
    check_set_layers(c, atoi(field[1]), check_ps(field[2]), check_ps(field[3]));
    c->config.head_fwd_ps = check_ps(field[4]);
    c->config.head_bwd_ps = check_ps(field[5]);
    c->config.hop_ps = check_ps(field[6]);
}

/* "layers/fwd/bwd/hop", without a head */
static void check_plain_costs(check_case *c, char *text)
{
    char *field[MAX_FIELDS];
    if (check_split(text, '/', field) != 4) {
        check_fail("not layers/fwd/bwd/hop", text);
    }
    check_set_layers(c, atoi(field[0]), check_ps(field[1]), check_ps(field[2]));
    c->config.hop_ps = check_ps(field[3]);
}

static int check_int_list(const char *text, int *values_out)
{
    int count = 0;
    for (const char *at = text; *at != '\0';) {
        char *end = NULL;
        if (count == MAX_LAYERS) {
            check_fail("too many stages", text);
        }
        values_out[count++] = (int)strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0')) {
            check_fail("not a list of layers", text);
        }
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}

/* schedule;model;layers_per_stage */
static void check_load_partition(check_case *c, const char *folder, const char *schedule,
                                 const char *model)
{
    FILE *file = check_open(folder, "partitions.csv");
    char line[MAX_LINE];
    char *field[MAX_FIELDS];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        found = check_split(line, ';', field) == 3 && strcmp(field[0], schedule) == 0 &&
                strcmp(field[1], model) == 0;
    }
    fclose(file);
    if (!found) {
        check_fail("no partition", model);
    }
    char *bar = strchr(field[2], '|');
    if (bar != NULL) {
        *bar = '\0';
        c->config.backward_count = check_int_list(bar + 1, c->backward_layers);
        c->config.backward_layers = c->backward_layers;
    }
    c->config.stage_count = check_int_list(field[2], c->stage_layers);
    c->config.stage_layers = c->stage_layers;
}

/* One layer per stage. */
static void check_equal_partition(check_case *c)
{
    for (int i = 0; i < c->config.layers; i++) {
        c->stage_layers[i] = 1;
    }
    c->config.stage_count = c->config.layers;
    c->config.stage_layers = c->stage_layers;
}

static bool check_one(const char *row, const char *metric, int64_t got_ps, const char *expected)
{
    int64_t difference = llabs(got_ps - check_ps(expected));
    if (difference > TOLERANCE_PS) {
        printf("FAIL %s: %s is %.6f ms, expected %s\n", row, metric, (double)got_ps / 1e9,
               expected);
    }
    return difference <= TOLERANCE_PS;
}

static slow_result check_run(const check_case *c, const char *row)
{
    slow_result result;
    if (!slow_run(&c->config, &result)) {
        check_fail("the rule does not allow", row);
    }
    free(result.iteration_end_ps);
    return result;
}

/* schedule,model,ops,makespan_ms,bubble_ms,bubble_pct,fill_ms,... (see the header of the file) */
static bool check_published_row(const char *folder, char **field)
{
    static check_case c;
    c = (check_case){0};
    c.config.schedule = (slow_schedule)check_name(SCHEDULES, 5, field[0]);
    bool roundpipe = c.config.schedule == SLOW_ROUNDPIPE;
    c.config.recompute = roundpipe ? SLOW_RECOMPUTE_EARLY : SLOW_RECOMPUTE_WAIT;
    c.config.gpus = 8;
    c.config.microbatches = 16;
    c.config.iterations = 1;
    c.config.round = 8;
    check_load_costs(&c, folder, field[1]);
    check_load_partition(&c, folder, field[0], field[1]);
    char row[MAX_LINE];
    snprintf(row, sizeof row, "%s %s", field[0], field[1]);
    slow_result result = check_run(&c, row);
    bool good = check_one(row, "makespan", result.makespan_ps, field[3]);
    good = check_one(row, "bubble", result.bubble_ps, field[4]) && good;
    good = check_one(row, "fill", result.fill_ps, field[6]) && good;
    good = check_one(row, "switch", result.switch_ps, field[8]) && good;
    good = check_one(row, "drain", result.drain_ps, field[10]) && good;
    good = check_one(row, "intra", result.intra_ps, field[12]) && good;
    good = check_one(row, "comm total", result.comm_total_ps, field[14]) && good;
    good = check_one(row, "comm exposed", result.comm_exposed_ps, field[15]) && good;
    return good;
}

/* source;schedule;costs;partition;gpus;microbatches;round;rotate;recompute;makespan_ms */
static bool check_value_row(const char *folder, char **field)
{
    static check_case c;
    c = (check_case){0};
    c.config.schedule = (slow_schedule)check_name(SCHEDULES, 5, field[1]);
    c.config.gpus = atoi(field[4]);
    c.config.microbatches = atoi(field[5]);
    c.config.iterations = 1;
    c.config.round = atoi(field[6]);
    c.config.rotate = atoi(field[7]) != 0;
    c.config.recompute = (slow_recompute)check_name(RECOMPUTES, 3, field[8]);
    bool published = strcmp(field[3], "published") == 0;
    if (published) {
        check_load_costs(&c, folder, field[2]);
        check_load_partition(&c, folder, field[1], field[2]);
    } else {
        check_plain_costs(&c, field[2]);
        check_equal_partition(&c);
    }
    slow_result result = check_run(&c, field[0]);
    return check_one(field[0], "makespan", result.makespan_ps, field[9]);
}

/* Checks every row after the header. @return the number of rows that failed */
static int check_file(FILE *file, char separator, int fields, const char *folder,
                      bool (*check_row)(const char *folder, char **field), int *rows_out)
{
    char line[MAX_LINE];
    char *field[MAX_FIELDS];
    int failed = 0;
    *rows_out = 0;
    if (fgets(line, sizeof line, file) == NULL) {
        check_fail("empty file", folder);
    }
    while (fgets(line, sizeof line, file) != NULL) {
        if (check_split(line, separator, field) != fields) {
            check_fail("wrong number of fields", line);
        }
        failed += check_row(folder, field) ? 0 : 1;
        (*rows_out)++;
    }
    fclose(file);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: check_published PAPER_DIR [CHECK_VALUES_CSV]\n");
        return 2;
    }
    int rows = 0;
    FILE *published = check_open(argv[1], "pipeline_bubbles.csv");
    int failed = check_file(published, ',', 17, argv[1], check_published_row, &rows);
    printf("published rows: %d of %d agree\n", rows - failed, rows);
    bool good = failed == 0 && rows == 25;
    FILE *values = check_open("", argc == 3 ? argv[2] : "tests/reference/check_values.csv");
    failed = check_file(values, ';', 10, argv[1], check_value_row, &rows);
    printf("check values: %d of %d agree\n", rows - failed, rows);
    return good && failed == 0 && rows > 0 ? 0 : 1;
}
