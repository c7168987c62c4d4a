/** @file options.h  Command lines from rows.
 *
 * An option is a row of its program's table. Parsing, messages, --help, the man page, the page in
 * docs/generated, shell completion and the settings in JSON and stores come from the rows.
 * Combinations that are refused are rows of a second table. The program's structure begins with an
 * rp_options; a row names the member for its value. Members and rows stand together in the
 * program's options_rows.inc, which is included twice: for the structure and for the table.
 *
 * Placeholders of arguments have a meaning for shell completion: words in small letters between |
 * are values; F, FILE and PREFIX are files, DIR is a folder, NAME one of the row's `names`. */
#pragma once

#include "common/base/mem.h"
#include "common/base/reason.h"
#include "common/base/status.h"
#include "common/formats/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Most rows of a table, --help and --version included. */
#define RP_OPTIONS_MAX 128u

/** Kinds of values, with the content of the row's member. */
typedef enum rp_option_kind {
    RP_OPTION_FLAG, /**< no argument; `means`, into a bool or an enum */
    RP_OPTION_U32,  /**< a count (rp_option_count) from 1 to `most`; 0 for the word all, with
                       `all` */
    RP_OPTION_U64,  /**< an integer */
    RP_OPTION_MIB,  /**< a count of MiB from 1 to `most`, into a uint64_t that counts bytes */
    RP_OPTION_REAL, /**< a double from 0 to `most` */
    RP_OPTION_TEXT, /**< the text, which must be among `choices`, if any; NULL for the word `none`,
                       if any */
    RP_OPTION_CHOICE, /**< index among `choices`, into an enum or, for two choices, a bool */
    RP_OPTION_LIST,   /**< texts between commas; `count` is their number */
    RP_OPTION_TAKE,   /**< the value that `take` makes of the text */
} rp_option_kind;

/** A member of the program's structure; size 0: none. */
typedef struct rp_option_member {
    size_t offset;
    size_t size;
} rp_option_member;

#define RP_OPTION_MEMBER(type, member)                                                             \
    {                                                                                              \
        offsetof(type, member), sizeof(((type *)0)->member)                                        \
    }

/** In a row: the table does not write this setting into JSON and stores. The program writes it
 * itself, for example as the number that was resolved from it (sim/study/record.c), or leaves it
 * out. The table writes all other settings from their members. */
#define RP_OWN_SETTING .own_setting = true

struct rp_text;

typedef struct rp_option rp_option;
struct rp_option {
    const char *name;     /**< without "--" */
    const char *argument; /**< placeholder; NULL: `choices` */
    uint32_t group;       /**< of the program's groups */
    rp_option_kind kind;
    rp_option_member to;    /**< member for the value */
    rp_option_member count; /**< member for the length of a list */
    rp_option_member given; /**< second member, which the option sets to `means` */
    uint32_t means;         /**< 0: 1, or true */
    double most;
    bool all;
    bool binary;         /**< k, M and B of a count are powers of 1024 */
    const char *choices; /**< words separated by | */
    const char *aliases; /**< other names of the same choices, in the same order */
    const char *valid;   /**< valid values in messages; NULL: made from kind and limits */
    const char *none;
    const char *usual; /**< value of an omitted option, if it is always the same */
    unsigned marks;    /**< bits of the program; rules name all options with a bit together */
    const char *names; /**< kind of `rpsim --list` whose names NAME stands for */
    const char *key;   /**< key in JSON; NULL: the name with _ for - */
    bool own_setting;  /**< RP_OWN_SETTING */
    bool output;       /**< a file to be written: no two options may name the same file */
    /* For programs that run as several processes, which must agree in all other options: */
    bool own;       /**< each process may have its own value, as it may for outputs */
    bool elsewhere; /**< a file or folder with another path in each process: given to all processes
                       or none */
    bool repeats;   /**< values add up; the setting is all of them, joined by commas */
    char letter;    /**< letter of the short form; 0: none */
    /** Refuses by rp_option_bad or rp_refuse. @param options the program's structure */
    rp_status (*take)(const rp_option *row, const char *text, rp_arena *arena, void *options,
                      rp_reason *reason);
    /** Gives the text from which `take` would make the member's value; NULL: the option is not
     * given. */
    rp_status (*text)(const rp_option *row, const void *options, rp_arena *arena,
                      const char **text_out);
    /** Writes keys and values into the settings, in place of the row's key and value. */
    void (*write)(const void *options, rp_json *json);
    /** Writes the value after the row's key, in place of the member's value. */
    void (*write_value)(const void *options, rp_json *json);
    const char *help; /**< a paragraph, with the default in parentheses */
};

typedef struct rp_option_group {
    const char *title;
    bool settings; /**< its options are settings of the run, which JSON and store have */
} rp_option_group;

/** A refused combination: all of its conditions hold. Names of options are separated by blanks. */
typedef struct rp_option_rule {
    const char *given;                 /**< any of these is given; the message names the first */
    unsigned given_mark;               /**< instead of `given`: the mark of the given options */
    const char *with;                  /**< any of these is given, too */
    unsigned with_mark;                /**< instead of `with`: the mark of the further options */
    const char *without;               /**< none of these is given */
    bool (*when)(const void *options); /**< must hold as well; logs the refusal itself if there is
                                          no message */
    const char *(*subject)(const void *options); /**< gives the text for the @ in the message */
    const char *message; /**< follows "--OPTION: ", or stands alone if no option must be given */
} rp_option_rule;

typedef struct rp_options_program {
    const char *name;
    const char *purpose; /**< phrase for NAME of the man page */
    const char *usage;   /**< a line for each form, without "Usage:" */
    const char *words;   /**< placeholder of words that are not options; NULL: none are allowed */
    const char *description; /**< each line is a paragraph */
    const char *notes;       /**< paragraphs after the options, each a line; NULL: none */
    const char *exit_status; /**< meanings of the exit statuses; NULL: the usual meanings */
    const char *example;     /**< a command line */
    const rp_option_group *groups;
    uint32_t group_count;
    const rp_option *rows; /**< in the order of the settings */
    uint32_t row_count;
    const rp_option_rule *rules;
    uint32_t rule_count;
} rp_options_program;

/** The tables of a program that has arrays of these names. */
#define RP_OPTION_TABLES(groups_, rows_, rules_)                                                   \
    .groups = (groups_), .group_count = sizeof(groups_) / sizeof(groups_)[0], .rows = (rows_),     \
    .row_count = sizeof(rows_) / sizeof(rows_)[0], .rules = (rules_),                              \
    .rule_count = sizeof(rules_) / sizeof(rules_)[0]

/** Requests that every program answers (rp_options_answer); all but RUN end the parsing. */
typedef enum rp_options_request {
    RP_OPTIONS_RUN, /**< no request: the program runs */
    RP_OPTIONS_HELP,
    RP_OPTIONS_VERSION,
    RP_OPTIONS_MAN,  /**< --print-man, for the build */
    RP_OPTIONS_BASH, /**< --print-bash */
    RP_OPTIONS_ZSH,  /**< --print-zsh */
} rp_options_request;

/** First member of every program's structure. */
typedef struct rp_options {
    rp_options_request request;
    const char **words; /**< words that are not options, in the arena */
    uint32_t word_count;
    uint32_t given_count;
    struct {
        uint32_t when;       /**< 0: not given; otherwise counted from 1 */
        const char *text;    /**< value given last, or all values joined if the row repeats */
    } given[RP_OPTIONS_MAX]; /**< by row */
} rp_options;

/**
 * Reads a command line into the program's structure. Names may be abbreviated, other words may
 * stand between options, and `--` ends the options.
 * @param options begins with an rp_options; holds the defaults
 * @param arena owns words, lists and joined texts; all other texts are borrowed from argv
 * @retval RP_OK, RP_USAGE (refused, with what is valid), RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_options_parse(const rp_options_program *program, int argc, char **argv,
                           rp_arena *arena, void *options, rp_reason *reason);

/**
 * Gives an option its value as the word --KEY=TEXT of a command line does.
 * @param key the row's name, possibly abbreviated
 * @param text of a flag: NULL; borrowed
 * @param options as rp_options_parse has it
 * @retval RP_OK, RP_USAGE (refused as on the command line), RP_NO_MEMORY
 */
rp_status rp_options_set(const rp_options_program *program, const char *key, const char *text,
                         rp_arena *arena, void *options, rp_reason *reason);

/**
 * Sets an option of the kind count to a number.
 * @param key the row's name
 * @retval RP_OK, RP_USAGE (out of the row's range), RP_NO_MEMORY, RP_BROKEN (no such row)
 */
rp_status rp_options_set_count(const rp_options_program *program, const char *key, uint64_t count,
                               rp_arena *arena, void *options, rp_reason *reason);

/**
 * Sets a member of any structure from the text of a row's option, as the option on a command line
 * does.
 * @param row its members are offsets into `object`
 * @param text of a flag: NULL
 * @param arena owns lists; texts are borrowed
 * @retval RP_OK, RP_USAGE (refused, with what is valid), RP_NO_MEMORY
 */
rp_status rp_option_assign(const rp_option *row, const char *text, rp_arena *arena, void *object,
                           rp_reason *reason);

/** Checks that a row's count or number, which may come from elsewhere than a text, is at most
 * `most`.
 * @retval RP_OK, RP_USAGE (as rp_option_assign refuses it) */
rp_status rp_option_check(const rp_option *row, const void *object, rp_reason *reason);

/**
 * Gives the text from which rp_option_assign would make a member's value.
 * @param text_out borrowed from the object, or in `arena`; "" for a flag; NULL: the value is not
 *        given, or is the usual value of a row without `given`
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (rows of this kind have no text)
 */
rp_status rp_option_text(const rp_option *row, const void *object, rp_arena *arena,
                         const char **text_out);

/**
 * Appends a row's option and its value to a command line, quoted for a shell; nothing without a
 * value.
 * @retval as rp_option_text
 */
rp_status rp_option_add(const rp_option *row, const void *object, rp_arena *arena,
                        struct rp_text *line);

/** Applies the rules in their order. @retval RP_OK, RP_USAGE (refused), RP_BROKEN */
rp_status rp_options_check(const rp_options_program *program, const void *options,
                           rp_reason *reason);

/**
 * Writes the answer to options->request: the version, the man page, the completion, or the help,
 * which is wrapped to COLUMNS, else to the terminal's width if `stream` is a terminal, else to 80
 * columns.
 * @retval RP_OK, RP_BROKEN (the tables contradict themselves; only found by MAN, BASH and ZSH)
 */
rp_status rp_options_answer(const rp_options_program *program, const void *options, FILE *stream);

/**
 * Writes keys and values of the settings into an open object: members of groups that are settings.
 * @param all also writes options that were not given and whose member is 0
 */
void rp_options_write_settings(const rp_options_program *program, const void *options, bool all,
                               rp_json *json);

/**
 * Writes keys and values of rows into an open object: of rows that were given or whose member is
 * not 0, except rows with `own_setting`.
 * @param object structure into which the rows' members are offsets
 */
void rp_option_write_members(const rp_option *rows, uint32_t count, const void *object,
                             rp_json *json);

/** @return the most bytes that all settings can take as JSON. */
size_t rp_options_settings_size(const rp_options_program *program, const void *options);

/** Writes the value of an option in the form of the settings. @param row without `write` */
void rp_options_write_value(const rp_options_program *program, const void *options,
                            const rp_option *row, rp_json *json);

/** Writes the reference page of a program below its heading: usage, options by groups, notes, exit
 * statuses and an example. */
void rp_options_markdown(const rp_options_program *program, FILE *stream);
