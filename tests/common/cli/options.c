/* The engine of every command line, in a program with an option of each kind. */
#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "common/cli/options_internal.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

TestSuite(options, .init = rp_test_arena_begin, .fini = rp_test_arena_end);

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MOST_WORDS 16

typedef enum colour {
    RED,
    GREEN,
    BLUE,
} colour;

typedef struct settings {
    rp_options common;
    bool loud;
    bool loud_given;
    uint32_t count;
    uint64_t seed;
    double rate;
    const char *file;
    const char *list;
    colour colour;
    bool second;
    const char **names;
    uint32_t name_count;
    uint32_t length; /* sum of --sum's values */
} settings;

static rp_status take_sum(const rp_option *row, const char *text, rp_arena *arena, void *options,
                          rp_reason *reason)
{
    (void)arena;
    ((settings *)options)->length += (uint32_t)strlen(text);
    return strcmp(text, "bad") == 0 ? rp_option_bad(row->name, text, row->valid, reason) : RP_OK;
}

enum { FIRST, LAST };
enum { MARKED = 1 };

static const rp_option_group groups[] = {[FIRST] = {"First", true}, [LAST] = {"Last", false}};

#define TO(member) .to = RP_OPTION_MEMBER(settings, member)

static const rp_option rows[] = {
    {"loud", NULL, FIRST, RP_OPTION_FLAG, TO(loud), .letter = 'l',
     .given = RP_OPTION_MEMBER(settings, loud_given), .help = "noise"},
    {"count", "N|all", FIRST, RP_OPTION_U32, TO(count), .most = 70, .all = true, .letter = 'c',
     .help = "things"},
    {"seed", "K", FIRST, RP_OPTION_U64, TO(seed), .marks = MARKED, .help = "of random numbers"},
    {"rate", "X", FIRST, RP_OPTION_REAL, TO(rate), .most = 2.5, .key = "rate_gb", .help = "speed"},
    {"file", "F", FIRST, RP_OPTION_TEXT, TO(file), .none = "nothing", .help = "what is read"},
    {"colour", NULL, FIRST, RP_OPTION_CHOICE, TO(colour), .choices = "red|green|blue",
     .help = "a colour"},
    {"second-one", NULL, FIRST, RP_OPTION_CHOICE, TO(second), .choices = "a|b", .valid = "a and b",
     .help = "either"},
    {"sum", "TEXT", FIRST, RP_OPTION_TAKE, .take = take_sum, .repeats = true, .valid = "others",
     .help = "adds up"},
    {"names", "NAME[,NAME…]", LAST, RP_OPTION_LIST, TO(names),
     .count = RP_OPTION_MEMBER(settings, name_count), .names = "models", .help = "several"},
    {"name-file", "F", LAST, RP_OPTION_TEXT, TO(file), .help = "several of a file"},
    {"list", NULL, LAST, RP_OPTION_TEXT, TO(list), .choices = "these|those", .marks = MARKED,
     .help = ".begins with a dot, costs - 3 \\ 4 'quoted' [x]: and is long enough that it needs "
             "several lines of eighty columns, whatever stands before it"},
    {"large", "N", LAST, RP_OPTION_U32, TO(length), .most = 65536, .help = "many"},
    {"lengths", "N", LAST, RP_OPTION_U32, TO(length), .most = 65536, .binary = true,
     .help = "of 1024s"},
    {"own", "DIR", FIRST, RP_OPTION_TEXT, TO(file), .own_setting = true, .help = "not written"},
};

static bool is_blue(const void *options)
{
    return ((const settings *)options)->colour == BLUE;
}

static const char *file_of(const void *options)
{
    return ((const settings *)options)->file;
}

static bool logs(const void *options)
{
    bool bad = ((const settings *)options)->seed == 13;
    if (bad) {
        rp_log_error("13 brings bad luck");
    }
    return bad;
}

static const rp_option_rule rules[] = {
    {.given = "rate", .without = "file names", .message = "valid only with --file F"},
    {.given = "loud count", .with = "colour", .message = "valid without --colour"},
    {.given_mark = MARKED, .with = "second-one", .message = "fixed"},
    {.given = "file", .when = is_blue, .subject = file_of, .message = "'@' is not blue"},
    {.when = is_blue, .message = "blue is out"},
    {.given = "seed", .when = logs},
};

static rp_options_program program = {
    .name = "tool",
    .purpose = "does this",
    .usage = "tool [options]\ntool WORD",
    .words = "FILE",
    .description = "Does this.\n.Or that.",
    .notes = "A note.",
    .example = "tool --count 3",
    RP_OPTION_TABLES(groups, rows, rules),
};

static char messages[4096];

static rp_status parse(const char *line, settings *s)
{
    char *argv[MOST_WORDS] = {(char *)(uintptr_t) "tool"};
    const char *copy = NULL;
    int argc = 1;
    cr_assert(eq(int, rp_arena_copy_text(rp_test_arena, line, strlen(line), &copy), RP_OK));
    char *words = (char *)(uintptr_t)copy;
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = strcmp(word, "''") == 0 ? (char *)(uintptr_t) "" : word;
    }
    *s = (settings){.colour = RED};
    messages[0] = '\0';
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rp_options_parse(&program, argc, argv, rp_test_arena, s, NULL);
    bool runs = status == RP_OK && s->common.request == RP_OPTIONS_RUN;
    status = runs ? rp_options_check(&program, s, NULL) : status;
    rp_log_capture_end();
    return status;
}

static void check_well(const char *line, settings *s)
{
    cr_assert(eq(int, parse(line, s), RP_OK), "%s: %s", line, messages);
    cr_expect(eq(str, messages, ""));
}

Test(options, values_go_to_their_members)
{
    settings s;
    check_well("--loud --seed 18446744073709551615 --sum abc --sum=de f --names a,b,c -- --count",
               &s);
    cr_expect(s.loud && s.loud_given);
    cr_expect(eq(u64, s.seed, UINT64_MAX));
    cr_expect(eq(u32, s.length, 5));
    cr_expect(eq(u32, s.name_count, 3));
    cr_expect(eq(str, (char *)(uintptr_t)s.names[2], "c"));
    cr_expect(eq(u32, s.common.word_count, 2));
    cr_expect(eq(str, (char *)(uintptr_t)s.common.words[0], "f"));
    cr_expect(eq(str, (char *)(uintptr_t)s.common.words[1], "--count"));
    cr_expect(s.common.given[rp_options_find(&program, "sum", 3)].when > 0);
    cr_expect(eq(u32, s.common.given[rp_options_find(&program, "count", 5)].when, 0));
    check_well("--rate 2.5 --file x --second-one b --colour green", &s);
    cr_expect(ieee_ulp_eq(dbl, s.rate, 2.5, 0));
    cr_expect(eq(int, s.colour, GREEN));
    cr_expect(s.second);
    check_well("-l -c 3 --file nothing --second-one a -", &s);
    cr_expect(s.loud && s.file == NULL && !s.second);
    cr_expect(eq(u32, s.count, 3));
    check_well("--large 64k", &s);
    cr_expect(eq(u32, s.length, 64000));
    check_well("--name a,b --name-f x", &s);
    cr_expect(eq(u32, s.name_count, 2));
    cr_expect(eq(str, (char *)(uintptr_t)s.file, "x"));
    check_well("--lengths 64k", &s);
    cr_expect(eq(u32, s.length, 65536));
    check_well("-c7 --count all --list those", &s);
    cr_expect(eq(u32, s.count, 0));
    check_well("--count 3 --count=70 --see 5 --colo blue --help --nonsense", &s);
    cr_expect(eq(u32, s.count, 70));
    cr_expect(eq(u64, s.seed, 5));
    cr_expect(eq(int, s.common.request, RP_OPTIONS_HELP));
}

/* Sets keys ("key=text", or "key" of a flag) in turn until the first refusal. */
static rp_status set(const char *line, settings *s)
{
    const char *copy = NULL;
    rp_status status = RP_OK;
    cr_assert(eq(int, rp_arena_copy_text(rp_test_arena, line, strlen(line), &copy), RP_OK));
    *s = (settings){.colour = RED};
    rp_log_capture_begin(messages, sizeof messages);
    for (char *key = strtok((char *)(uintptr_t)copy, " "); key != NULL && status == RP_OK;
         key = strtok(NULL, " ")) {
        char *text = strchr(key, '=');
        if (text != NULL) {
            *text++ = '\0';
        }
        status = rp_options_set(&program, key, text, rp_test_arena, s, NULL);
    }
    rp_log_capture_end();
    return status;
}

Test(options, keys_are_what_the_words_of_a_command_line_are)
{
    settings by_key;
    settings by_word;
    cr_assert(
        eq(int, set("loud sum=abc seed=7 sum=de rate=1.5 names=a,b colo=blue", &by_key), RP_OK),
        "%s", messages);
    (void)parse("--loud --sum=abc --seed=7 --sum=de --rate=1.5 --names=a,b --colo=blue", &by_word);
    cr_expect(by_key.loud && by_key.loud_given);
    cr_expect(eq(u64, by_key.seed, 7));
    cr_expect(eq(u32, by_key.length, 5));
    cr_expect(eq(u32, by_key.name_count, 2));
    cr_expect(eq(int, by_key.colour, BLUE));
    for (uint32_t i = 0; i < program.row_count; i++) {
        const char *text = by_key.common.given[i].text;
        const char *expected = by_word.common.given[i].text;
        cr_expect(eq(u32, by_key.common.given[i].when, by_word.common.given[i].when), "%s",
                  rows[i].name);
        cr_assert(eq(int, text == NULL, expected == NULL), "%s", rows[i].name);
        cr_expect(text == NULL || strcmp(text, expected) == 0, "%s: %s", rows[i].name, text);
    }
}

Test(options, keys_are_refused_as_words_are)
{
    static const char *const keys[] = {"count=71", "rate=3",     "colour=pink",
                                       "loud=1",   "coun=x",     "l=3",
                                       "large=0",  "nonsense=4", "second-one=c"};
    settings s;
    char by_key[sizeof messages];
    char word[64];
    for (size_t i = 0; i < COUNT(keys); i++) {
        cr_expect(eq(int, set(keys[i], &s), RP_USAGE), "%s", keys[i]);
        (void)snprintf(by_key, sizeof by_key, "%s", messages);
        (void)snprintf(word, sizeof word, "--%s", keys[i]);
        cr_expect(eq(int, parse(word, &s), RP_USAGE), "%s", word);
        cr_expect(eq(str, by_key, messages));
    }
    cr_expect(eq(int, set("count loud", &s), RP_USAGE));
    cr_expect(strstr(messages, "--count: the value is missing") != NULL, "%s", messages);
    static const char *const subjects[][2] = {
        {"nonsense-key=4", "nonsense_key"}, {"second-one=c", "second_one"}, {"count", "count"}};
    for (size_t i = 0; i < COUNT(subjects); i++) {
        char key[32];
        rp_reason reason = {0};
        (void)snprintf(key, sizeof key, "%s", subjects[i][0]);
        char *text = strchr(key, '=');
        if (text != NULL) {
            *text++ = '\0';
        }
        cr_expect(
            eq(int, rp_options_set(&program, key, text, rp_test_arena, &s, &reason), RP_USAGE));
        cr_expect(eq(str, reason.subject, (char *)(uintptr_t)subjects[i][1]));
    }
}

Test(options, counts_are_set_as_numbers)
{
    static const struct {
        const char *key;
        uint64_t most; /* 0: all */
    } cases[] = {{"count", 70}, {"seed", 0}, {"large", 65536}, {"lengths", 65536}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        settings s = {.colour = RED};
        uint64_t count = cases[i].most != 0 ? cases[i].most : UINT64_MAX;
        cr_expect(eq(int,
                     rp_options_set_count(&program, cases[i].key, count, rp_test_arena, &s, NULL),
                     RP_OK));
        cr_expect(eq(u64, i == 0 ? s.count : i == 1 ? s.seed : s.length, count));
        cr_expect(eq(u32, s.common.given_count, 1));
        rp_log_capture_begin(messages, sizeof messages);
        rp_status status =
            cases[i].most != 0
                ? rp_options_set_count(&program, cases[i].key, count + 1, rp_test_arena, &s, NULL)
                : RP_USAGE;
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE), "%s", cases[i].key);
    }
    settings s = {.colour = RED};
    cr_expect(eq(int, rp_options_set_count(&program, "sum", 1234, rp_test_arena, &s, NULL), RP_OK));
    cr_expect(eq(u32, s.length, 4)); /* its own rule sees the digits */
}

/* SI prefixes count powers of 1000, IEC 80000-13's powers of 1024. The letter k of a sequence's
 * length counts 1024, as in model names (32k: 32768 tokens). */
Test(options, counts_have_letters)
{
    static const struct {
        const char *text;
        uint64_t thousands, binary; /* 0: refused */
    } cases[] = {
        {"4k", 4000, 4096},
        {"4K", 4000, 4096},
        {"128k", 128000, 131072},
        {"2.3k", 2300, 0},
        {"1.5k", 1500, 1536},
        {"0.5M", 500000, 524288},
        {"1m", 1000000, 1 << 20},
        {"2B", 2000000000, UINT64_C(2) << 30},
        {"1T", UINT64_C(1000000000000), UINT64_C(1) << 40},
        {"8192", 8192, 8192},
        {"k", 0, 0},
        {"4kk", 0, 0},
        {"4 k", 0, 0},
        {"-4k", 0, 0},
        {"4q", 0, 0},
        {"0.0001k", 0, 0},
        {"0k", 0, 0},
        {"", 0, 0},
        {"1e3", 0, 0},
        {"3.", 0, 0},
        {"1e9T", 0, 0},
        {"99999999999999999999", 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (int k = 0; k < 2; k++) {
            uint64_t expected = k == 0 ? cases[i].thousands : cases[i].binary;
            uint64_t count = 0;
            bool good = rp_option_count(cases[i].text, k == 0 ? 1000 : 1024, 1, UINT64_MAX, &count);
            cr_expect(eq(int, good, expected != 0), "%s", cases[i].text);
            cr_expect(eq(u64, good ? count : 0, expected), "%s", cases[i].text);
        }
    }
}

Test(options, bad_command_lines_are_refused)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"--count 0", "--count: '0' is not valid; valid values are all and integers from 1 to 70"},
        {"--count 71",
         "--count: '71' is not valid; valid values are all and integers from 1 to 70"},
        {"--count ''", "--count: '' is not valid; valid values are all and integers from 1 to 70"},
        {"-c x", "--count: 'x' is not valid; valid values are all and integers from 1 to 70"},
        {"--seed -1",
         "--seed: '-1' is not valid; valid values are integers from 0 to 18446744073709551615"},
        {"--rate 2.6 --file f",
         "--rate: '2.6' is not valid; valid values are numbers from 0 to 2.5"},
        {"--colour red|green",
         "--colour: 'red|green' is not valid; valid values are red|green|blue"},
        {"--colour", "--colour: the value is missing; see tool --help"},
        {"-c", "-c: the value is missing; see tool --help"},
        {"--second-one c", "--second-one: 'c' is not valid; valid values are a and b"},
        {"--list some", "--list: 'some' is not valid; valid values are these|those"},
        {"--sum bad", "--sum: 'bad' is not valid; valid values are others"},
        {"--names a,,b", "--names: 'a,,b' is not valid; valid values are names separated by single "
                         "commas"},
        {"--large 4q", "--large: '4q' is not valid; valid values are integers from 1 to 65536, "
                       "also with k, M or B behind them"},
        {"--large 66k", "--large: '66k' is not valid"},
        {"--gths 1", "--gths: unknown or incomplete option; did you mean --lengths"},
        {"--cuont 3",
         "--cuont: unknown or incomplete option; did you mean --count; see tool --help "
         "for the valid ones"},
        {"--loud=yes",
         "--loud=yes: unknown or incomplete option; see tool --help for the valid ones"},
        {"--l", "--l: unknown or incomplete option"},
        {"--nam a", "--nam: unknown or incomplete option; did you mean --names"},
        {"--print-m", "--print-m: unknown or incomplete option"},
        {"-x", "-x: unknown or incomplete option"},
        {"-lx", "-lx: unknown or incomplete option"},
        {"--rate 1", "--rate: valid only with --file F"},
        {"--count 3 --loud --colour red", "--loud: valid without --colour"},
        {"--count 3 --colour red", "--count: valid without --colour"},
        {"--seed 1 --list these --second-one a", "--seed: fixed"},
        {"--list these --second-one a --seed 1", "--seed: fixed"},
        {"--second-one a --list these", "--list: fixed"},
        {"--colour blue --file sky", "--file: 'sky' is not blue"},
        {"--colour blue", "blue is out"},
        {"--seed 13", "13 brings bad luck"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        settings s;
        cr_expect(eq(int, parse(cases[i].line, &s), RP_USAGE), "%s", cases[i].line);
        cr_expect(strncmp(messages, cases[i].message, strlen(cases[i].message)) == 0, "%s: %s",
                  cases[i].line, messages);
        cr_expect(eq(sz, strcspn(messages, "\n") + 1, strlen(messages)), "%s", cases[i].line);
    }
}

Test(options, words_are_refused_where_there_are_none)
{
    settings s;
    program.words = NULL;
    cr_expect(eq(int, parse("--loud word --count 0", &s), RP_USAGE));
    cr_expect(strncmp(messages, "'word': valid are options only; see tool --help\n", 48) == 0, "%s",
              messages);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static char *text_of(rp_options_request request, uint32_t columns)
{
    static char text[16384];
    settings s = {.common = {.request = request}};
    memset(text, 0, sizeof text);
    FILE *stream = fmemopen(text, sizeof text, "w");
    cr_assert(ne(ptr, stream, NULL));
    if (columns != 0) {
        rp_options_help(&program, columns, stream);
    } else {
        cr_assert(eq(int, rp_options_answer(&program, &s, stream), RP_OK));
    }
    fclose(stream);
    return text;
}

/* Characters of the widest line that could break at a blank. */
static size_t widest_line(const char *text)
{
    size_t widest = 0;
    for (const char *line = text; *line != '\0'; line += line[strcspn(line, "\n")] == '\n') {
        size_t length = strcspn(line, "\n");
        size_t width = 0;
        for (size_t i = 0; i < length; i++) {
            width += ((unsigned char)line[i] & 0xC0) != 0x80;
        }
        widest = width > widest ? width : widest;
        line += length;
    }
    return widest;
}

Test(options, help_is_grouped_and_wrapped)
{
    const char *help = text_of(RP_OPTIONS_RUN, 80);
    static const char *const parts[] = {
        "Usage: tool [options]\n       tool WORD\n\nDoes this.\n\n.Or that.\n\nFirst:\n",
        "\n  -l, --loud              noise\n",
        "\n  -c, --count N|all       things\n",
        "\n  --colour red|green|blue\n                          a colour\n",
        "\nLast:\n  --names NAME[,NAME…]    several\n",
        "\nHelp:\n  -h, --help              this text\n"
        "  -V, --version           version, git commit\n",
        "\nA note.\n\nExit status: 0 success, 1 the run failed, 2 bad usage or bad input.\n"
        "Example: tool --count 3\n"};
    for (size_t i = 0; i < COUNT(parts); i++) {
        cr_expect(strstr(help, parts[i]) != NULL, "%s is not in %s", parts[i], help);
    }
    cr_expect(strstr(help, "print-man") == NULL);
    for (uint32_t columns = 40; columns <= 200; columns++) {
        size_t widest = widest_line(text_of(RP_OPTIONS_RUN, columns));
        cr_expect(le(sz, widest, columns), "%u", columns);
        cr_expect(ge(sz, widest + 12, columns < 170 ? columns : 0), "%u: %zu", columns, widest);
    }
}

Test(options, help_is_as_wide_as_columns_say)
{
    static const struct {
        const char *columns;
        size_t widest;
    } cases[] = {{"60", 60}, {"120", 120}, {"0", 80}, {"x", 80}, {"12", 80}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        setenv("COLUMNS", cases[i].columns, 1);
        size_t widest = widest_line(text_of(RP_OPTIONS_HELP, 0));
        cr_expect(widest <= cases[i].widest && widest + 12 >= cases[i].widest, "%s: %zu",
                  cases[i].columns, widest);
    }
}

Test(options, man_page_is_escaped)
{
    const char *man = text_of(RP_OPTIONS_MAN, 0);
    static const char *const parts[] = {
        ".TH TOOL 1 \"\" \"rpsim ",
        "\n.SH NAME\ntool \\- does this\n",
        "\n.PP\n\\&.Or that.\n",
        "\n.SS First\n.TP\n.B \\-l, \\-\\-loud\nnoise\n",
        "\n\\&.begins with a dot, costs \\- 3 \\e 4 'quoted' [x]: and is long",
        "\n.SH EXIT STATUS\n0 success",
        "\n.SH EXAMPLES\n.nf\ntool \\-\\-count 3\n.fi\n"};
    for (size_t i = 0; i < COUNT(parts); i++) {
        cr_expect(strstr(man, parts[i]) != NULL, "%s is not in %s", parts[i], man);
    }
    cr_expect(strstr(man, "\n.begins") == NULL);
}

Test(options, completions_name_values)
{
    const char *bash = text_of(RP_OPTIONS_BASH, 0);
    cr_expect(strstr(bash, "    --colour)\n        words='red green blue'\n        ;;\n") != NULL);
    cr_expect(strstr(bash, "    --count)\n        words='all'\n        ;;\n") != NULL);
    cr_expect(strstr(bash, "    --file)\n        kind=-f\n        ;;\n") != NULL);
    cr_expect(strstr(bash, "    --own)\n        kind=-d\n        ;;\n") != NULL);
    cr_expect(strstr(bash, "rpsim --list models") != NULL);
    cr_expect(strstr(bash, "\ncomplete -F _tool tool\n") != NULL);
    const char *zsh = text_of(RP_OPTIONS_ZSH, 0);
    cr_expect(strncmp(zsh, "#compdef tool\n", 14) == 0);
    cr_expect(strstr(zsh, "'--colour=[a colour]:red|green|blue: _tool_value - - red green blue'") !=
              NULL);
    cr_expect(strstr(zsh, "'--file=[what is read]:F: _tool_value files - '") != NULL);
    cr_expect(strstr(zsh, "4 '\\''quoted'\\'' \\[x\\]\\: and") != NULL);
    cr_expect(strstr(zsh, "'*--sum=[adds up]") != NULL);
}

/* ---- settings -------------------------------------------------------------------------------- */

static char *settings_of(const settings *s, bool all)
{
    static char text[4096];
    rp_json json;
    memset(text, 0, sizeof text);
    FILE *stream = fmemopen(text, sizeof text, "w");
    rp_json_begin_document(&json, stream, 0);
    rp_json_begin_object(&json);
    rp_options_write_settings(&program, s, all, &json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    fclose(stream);
    cr_expect(le(sz, strlen(text), rp_options_settings_size(&program, s)));
    return text;
}

Test(options, settings_are_written)
{
    settings s;
    check_well("", &s);
    cr_expect(eq(str, settings_of(&s, false), "{}\n"));
    cr_expect(eq(str, settings_of(&s, true),
                 "{\"loud\":0,\"count\":\"all\",\"seed\":0,\"rate_gb\":0,\"file\":\"nothing\","
                 "\"colour\":\"red\",\"second_one\":\"a\",\"sum\":null}\n"));
    check_well("--rate 0 --file \"x\" --sum a --sum b,c --list these --names n", &s);
    cr_expect(eq(str, settings_of(&s, false),
                 "{\"rate_gb\":0,\"file\":\"\\\"x\\\"\",\"sum\":\"a,b,c\"}\n"));
    check_well("--loud --seed 3 --count 5", &s);
    s.colour = GREEN;
    cr_expect(eq(str, settings_of(&s, false),
                 "{\"loud\":1,\"count\":5,\"seed\":3,\"colour\":\"green\"}\n"));
}

/* A contradictory table ends the build, which prints man pages. */
Test(options, mistakes_in_tables_are_found)
{
    static const rp_option wrong[][2] = {
        {{"a", "N", 0, RP_OPTION_U32, TO(seed), .help = "too wide a member"}},
        {{"a", "N", 0, RP_OPTION_REAL, TO(count), .help = "too narrow a member"}},
        {{"a", "N", 0, RP_OPTION_TAKE, .help = "no function"}},
        {{"a", "N", 0, RP_OPTION_CHOICE, TO(colour), .help = "no choices"}},
        {{"a", NULL, 0, RP_OPTION_U32, TO(count), .help = "no placeholder"}},
        {{"a", "N", 0, RP_OPTION_U32, .to = RP_OPTION_MEMBER(settings, count)}},
        {{"a", NULL, 0, RP_OPTION_FLAG, TO(loud), .help = "twice"},
         {"a", NULL, 0, RP_OPTION_FLAG, TO(loud), .help = "twice"}},
    };
    static const rp_option right = {"a", "N", 0, RP_OPTION_U32, TO(count), .help = "right"};
    static const rp_option_rule unknown = {.given = "a", .with = "a b", .message = "b is unknown"};
    settings s = {.common = {.request = RP_OPTIONS_MAN}};
    FILE *null = fopen("/dev/null", "w");
    char lost[512];
    cr_assert(ne(ptr, null, NULL));
    rp_log_capture_begin(lost, sizeof lost);
    program.rule_count = 0;
    program.row_count = 1;
    program.rows = &right;
    cr_expect(eq(int, rp_options_answer(&program, &s, null), RP_OK));
    for (size_t i = 0; i < COUNT(wrong); i++) {
        program.rows = wrong[i];
        program.row_count = wrong[i][1].name != NULL ? 2 : 1;
        cr_expect(eq(int, rp_options_answer(&program, &s, null), RP_BROKEN), "%zu", i);
    }
    program.rows = &right;
    program.row_count = 1;
    program.rules = &unknown;
    program.rule_count = 1;
    cr_expect(eq(int, rp_options_answer(&program, &s, null), RP_BROKEN));
    s.common.given[0].when = 1;
    cr_expect(eq(int, rp_options_check(&program, &s, NULL), RP_BROKEN));
    rp_log_capture_end();
    fclose(null);
}
