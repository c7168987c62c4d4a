#define _GNU_SOURCE /* memfd_create */
#include "tests/support/run_tool.h"

#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/make_program.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGUMENTS 48

static rp_arena *arena;
static const char *folder;

void rp_test_tool_begin(void)
{
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    setenv("COLUMNS", "1000", 1); /* sentences stay on one line; checks.widths tests other widths */
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    folder = rp_test_make_folder();
    cr_assert(folder != NULL);
}

void rp_test_tool_end(void)
{
    rp_test_remove(folder);
    rp_test_end(arena);
}

const char *rp_test_tool_folder(void)
{
    return folder;
}

rp_arena *rp_test_tool_arena(void)
{
    return arena;
}

/* Makes a file that takes the output of a program. */
static int open_outlet(void)
{
    int descriptor = memfd_create("tool", MFD_CLOEXEC);
    cr_assert(descriptor >= 0);
    return descriptor;
}

static const char *read_back(int descriptor)
{
    char *text = NULL;
    off_t size = lseek(descriptor, 0, SEEK_END);
    cr_assert(size >= 0 && lseek(descriptor, 0, SEEK_SET) == 0);
    cr_assert(eq(int, rp_arena_alloc(arena, (size_t)size + 1, 1, &text), RP_OK));
    for (off_t at = 0; at < size;) {
        ssize_t taken = read(descriptor, text + at, (size_t)(size - at));
        cr_assert(taken > 0);
        at += taken;
    }
    close(descriptor);
    return text;
}

/* fork() would copy the page tables of the test, which are many under AddressSanitizer, so it is
 * not used. */
rp_test_outcome rp_test_tool_execute(const char *path, const char *const *arguments)
{
    int output = open_outlet();
    int messages = open_outlet();
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    cr_assert(eq(int, posix_spawn_file_actions_init(&actions), 0));
    cr_assert(eq(int, posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO), 0));
    cr_assert(eq(int, posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO), 0));
    int refused = posix_spawn(&child, path, &actions, NULL, (char *const *)arguments, environ);
    cr_assert(eq(int, refused, 0), "%s: %s", path, strerror(refused));
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    cr_assert(waitpid(child, &status, 0) == child);
    return (rp_test_outcome){.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                             .output = read_back(output),
                             .messages = read_back(messages)};
}

const char *rp_test_tool_expand(const char *word, size_t length)
{
    rp_text text = {0};
    const char *expanded = NULL;
    bool empty = length == 2 && memcmp(word, "''", 2) == 0;
    for (size_t i = 0; i < length && !empty; i++) {
        bool dir = length - i >= 5 && memcmp(word + i, "@DIR@", 5) == 0;
        bool bad = length - i >= 5 && memcmp(word + i, "@BAD@", 5) == 0;
        const char *part = dir ? folder : bad ? RP_TEST_ROOT "/bad" : &word[i];
        cr_assert(eq(int, rp_text_append(&text, part, dir || bad ? strlen(part) : 1), RP_OK));
        i += dir || bad ? 4 : 0;
    }
    const char *bytes = text.bytes != NULL ? text.bytes : "";
    cr_assert(eq(int, rp_arena_copy_text(arena, bytes, text.length, &expanded), RP_OK));
    rp_text_fini(&text);
    return expanded;
}

static size_t add_words(const char *line, const char **arguments, size_t count)
{
    for (const char *word = line; *word != '\0';) {
        size_t length = strcspn(word, " ");
        cr_assert(lt(sz, count, MAX_ARGUMENTS));
        arguments[count++] = rp_test_tool_expand(word, length);
        word += length + (word[length] == ' ' ? 1 : 0);
    }
    return count;
}

rp_test_outcome rp_test_tool_run(const char *path, const char *name, const char *line)
{
    const char *arguments[MAX_ARGUMENTS + 1] = {name};
    add_words(line, arguments, 1);
    return rp_test_tool_execute(path, arguments);
}

rp_test_outcome rp_test_rpsim_after(const char *before, const char *line)
{
    const char *arguments[MAX_ARGUMENTS + 1] = {"rpsim"};
    add_words(line, arguments, add_words(before, arguments, 1));
    return rp_test_tool_execute(RPSIM_PATH, arguments);
}

rp_test_outcome rp_test_rpsim(const char *line)
{
    return rp_test_rpsim_after("", line);
}

rp_test_outcome rp_test_rpsim_well(const char *line)
{
    rp_test_outcome result = rp_test_rpsim(line);
    cr_assert(result.status == 0, "%s: %s", line, result.messages);
    return result;
}

json_t *rp_test_rpsim_rows(const char *before, const char *line)
{
    json_error_t error;
    rp_test_outcome result = rp_test_rpsim_after(before, line);
    cr_assert(result.status == 0, "%s: %s", line, result.messages);
    json_t *rows = json_loads(result.output, JSON_REJECT_DUPLICATES, &error);
    bool array = json_is_array(rows);
    cr_assert(array, "%s: %s: %s", line, error.text, result.output);
    return rows;
}

json_t *rp_test_rpsim_json(const char *line)
{
    return rp_test_rpsim_rows("--format json --fidelity stage", line);
}

rp_csv rp_test_tool_table(const char *name, const char *text, char separator)
{
    rp_csv table;
    rp_status status = rp_csv_parse(name, text, strlen(text), separator, arena, &table);
    cr_assert(status == RP_OK, "%s", text);
    return table;
}

const char *rp_test_tool_cell(const rp_csv *table, uint32_t row, const char *header)
{
    uint32_t column = 0;
    cr_assert(eq(int, rp_csv_column(table, header, &column), RP_OK));
    return rp_csv_cell(table, row, column);
}

const char *rp_test_tool_read(const char *path)
{
    rp_text text = {0};
    const char *copy = NULL;
    cr_assert(eq(int, rp_text_read_file(path, 1u << 24, &text), RP_OK));
    cr_assert(eq(int, rp_arena_copy_text(arena, text.bytes, text.length, &copy), RP_OK));
    rp_text_fini(&text);
    return copy;
}

double rp_test_json_number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

const char *rp_test_json_text(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static void check_refusal(rp_test_outcome (*run)(const char *line), const char *line,
                          const char *status, const char *cause, const char *valid)
{
    rp_test_outcome result = run(line);
    cr_expect(eq(int, result.status, atoi(status)), "%s: %s", line, result.messages);
    cr_expect(eq(str, (char *)result.output, ""), "%s", line);
    const char *wanted = rp_test_tool_expand(cause, strlen(cause));
    cr_expect(strstr(result.messages, wanted) != NULL, "%s: %s", line, result.messages);
    cr_expect(strstr(result.messages, valid) != NULL, "%s: %s", line, result.messages);
    const char *newline = strchr(result.messages, '\n');
    cr_expect(newline != NULL && newline[1] == '\0', "%s: one line: %s", line, result.messages);
    cr_expect(eq(sz, rp_test_remove(rp_test_tool_folder()), 0), "%s leaves files", line);
    cr_assert(eq(int, mkdir(rp_test_tool_folder(), 0777), 0));
}

void rp_test_refusals(const char *path, uint32_t least, rp_test_outcome (*run)(const char *line))
{
    rp_csv table = rp_test_tool_table(path, rp_test_tool_read(path), '\t');
    cr_assert(ge(u32, table.rows, least));
    for (uint32_t row = 0; row < table.rows; row++) {
        check_refusal(run, rp_test_tool_cell(&table, row, "arguments"),
                      rp_test_tool_cell(&table, row, "status"),
                      rp_test_tool_cell(&table, row, "message contains"),
                      rp_test_tool_cell(&table, row, "valid values contain"));
    }
}
