/** @file options.h  Command lines from rows.
 *
 * An option is one row of its program's table. Parsing, messages, --help, the man page, the page in
 * docs/generated, shell completion and the settings in JSON and stores come from the rows.
 * Combinations that are refused are rows of a second table. The program's structure begins with an
 * rp_options; a row says which member its value goes to. Members and rows stand together in the
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
#define RP_OPTIONS_MAX 80u

/** Kinds of values, and what goes to the row's member. */
typedef enum rp_option_kind {
    RP_OPTION_FLAG,   /**< no argument; `means`, into a bool or an enum */
    RP_OPTION_U32,    /**< a count (rp_option_count) from 1 to `most`; 0 for the word all, with
                         `all` */
    RP_OPTION_U64,    /**< an integer */
    RP_OPTION_REAL,   /**< a double from 0 to `most` */
    RP_OPTION_TEXT,   /**< the text; one of `choices`, if any; NULL for the word `none`, if any */
    RP_OPTION_CHOICE, /**< index among `choices`, into an enum or, of two, a bool */
    RP_OPTION_LIST,   /**< texts between commas; `count` is their number */
    RP_OPTION_TAKE,   /**< what `take` makes of it */
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

struct rp_text;

typedef struct rp_option rp_option;
struct rp_option {
    const char *name;     /**< without "--" */
    const char *argument; /**< placeholder; NULL: `choices` */
    uint32_t group;       /**< of the program's groups */
    rp_option_kind kind;
    rp_option_member to;    /**< where the value goes */
    rp_option_member count; /**< where the length of a list goes */
    rp_option_member given; /**< set to `means` by the option, too */
    uint32_t means;         /**< 0: 1, or true */
    double most;
    bool all;
    bool binary;         /**< k, M and B of a count are powers of 1024 */
    const char *choices; /**< words separated by | */
    const char *aliases; /**< of an index: the same choices under other names, in that order */
    const char *valid;   /**< valid values in messages; NULL: made from kind and limits */
    const char *none;
    const char *usual; /**< value that an omitted option means, where there is a single one */
    unsigned marks;    /**< kinds of options that rules name together; the program's own bits */
    const char *names; /**< kind of `rpsim --list` that NAME is of */
    const char *key;   /**< in JSON; NULL: the name with _ for - */
    bool own_setting;  /**< the program writes this setting itself, or none */
    bool output;       /**< a text that names a file to be written: no two may name the same */
    /* Of a program that several processes run together, which compare all other options: */
    bool own;       /**< each may have its own value; outputs are such, too */
    bool elsewhere; /**< a file or folder that may be elsewhere for each: given by all or none */
    bool repeats;   /**< values add up; the setting is all of them, joined by commas */
    char letter;    /**< of the short form; 0: none */
    /** Refuses by rp_option_bad or rp_refuse. @param options the program's structure */
    rp_status (*take)(const rp_option *row, const char *text, rp_arena *arena, void *options,
                      rp_reason *reason);
    /** Gives the text that `take` makes the member's value of; NULL: it is not given. */
    rp_status (*text)(const rp_option *row, const void *options, rp_arena *arena,
                      const char **text_out);
    /** Writes keys and values into the settings, in place of the row's key and value. */
    void (*write)(const void *options, rp_json *json);
    /** Writes the value behind the row's key, in place of the member's. */
    void (*write_value)(const void *options, rp_json *json);
    const char *help; /**< one paragraph, the default in parentheses */
};

typedef struct rp_option_group {
    const char *title;
    bool settings; /**< its options are settings of the run, which JSON and store have */
} rp_option_group;

/** A refused combination: all of its conditions hold. Names of options are separated by blanks. */
typedef struct rp_option_rule {
    const char *given;   /**< one of these is given; the message names the first of them */
    unsigned given_mark; /**< one with this mark is given, likewise; instead of `given` */
    bool names_last;     /**< the message names the one that was given last */
    const char *with;    /**< one of these is given, too */
    unsigned with_mark;  /**< one with this mark is given, too; instead of `with` */
    const char *without; /**< none of these is given */
    bool (*when)(const void *options); /**< and this holds; without a message it has logged one */
    const char *(*subject)(const void *options); /**< stands for the @ of the message */
    const char *message; /**< behind "--OPTION: "; alone where nothing must be given */
} rp_option_rule;

typedef struct rp_options_program {
    const char *name;
    const char *purpose;     /**< half a sentence: NAME of the man page */
    const char *usage;       /**< one line per form, without "Usage:" */
    const char *words;       /**< placeholder of words that are no options; NULL: there are none */
    const char *description; /**< one paragraph per line */
    const char *notes;       /**< behind the options, likewise; NULL: none */
    const char *exit_status; /**< NULL: the usual ones */
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
    RP_OPTIONS_RUN, /**< none of them */
    RP_OPTIONS_HELP,
    RP_OPTIONS_VERSION,
    RP_OPTIONS_MAN,  /**< --print-man, for the build */
    RP_OPTIONS_BASH, /**< --print-bash */
    RP_OPTIONS_ZSH,  /**< --print-zsh */
} rp_options_request;

/** First member of every program's structure. */
typedef struct rp_options {
    rp_options_request request;
    const char **words; /**< those that are no options, in the arena */
    uint32_t word_count;
    uint32_t given_count;
    struct {
        uint32_t when;       /**< 0: not given; otherwise counted from 1 */
        const char *text;    /**< value as given last, or joined where the row repeats */
    } given[RP_OPTIONS_MAX]; /**< by row */
} rp_options;

/**
 * Reads a command line into the program's structure. Names may be abbreviated, words may stand
 * between options, `--` ends the options.
 * @param options begins with an rp_options; holds the defaults
 * @param arena owns words, lists and joined texts; all other texts are borrowed from argv
 * @retval RP_OK, RP_USAGE (refused, with what is valid), RP_NO_MEMORY, RP_BROKEN
 */
rp_status rp_options_parse(const rp_options_program *program, int argc, char **argv,
                           rp_arena *arena, void *options, rp_reason *reason);

/**
 * Gives an option its value without a command line, as the word --KEY=TEXT in one does.
 * @param key the row's name, which may be abbreviated
 * @param text of a flag: NULL; borrowed
 * @param options as rp_options_parse has it
 * @retval RP_OK, RP_USAGE (refused as of the command line), RP_NO_MEMORY
 */
rp_status rp_options_set(const rp_options_program *program, const char *key, const char *text,
                         rp_arena *arena, void *options, rp_reason *reason);

/**
 * Gives an option whose value is a count a number.
 * @param key the row's name
 * @retval RP_OK, RP_USAGE (out of the row's range), RP_NO_MEMORY, RP_BROKEN (no such row)
 */
rp_status rp_options_set_count(const rp_options_program *program, const char *key, uint64_t count,
                               rp_arena *arena, void *options, rp_reason *reason);

/**
 * Gives a member of any structure the value of a row, as its option on a command line does.
 * @param row its members are offsets into `object`
 * @param text of a flag: NULL
 * @param arena owns lists; texts are borrowed
 * @retval RP_OK, RP_USAGE (refused, with what is valid), RP_NO_MEMORY
 */
rp_status rp_option_assign(const rp_option *row, const char *text, rp_arena *arena, void *object,
                           rp_reason *reason);

/** Checks that a count or a number of a row, which need not come from a text, is not above `most`.
 * @retval RP_OK, RP_USAGE (as rp_option_assign refuses it) */
rp_status rp_option_check(const rp_option *row, const void *object, rp_reason *reason);

/**
 * The text that rp_option_assign makes a member's value of.
 * @param text_out borrowed from the object, or in `arena`; of a flag ""; NULL: the value is not
 *        given, or the usual one of a row without `given`
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (no text is known of the row)
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
 * Writes what options->request asks for: help, wrapped to COLUMNS, to the terminal that `stream`
 * is, or to 80 columns; version; man page; completion.
 * @retval RP_OK, RP_BROKEN (the tables contradict themselves; only found by MAN, BASH and ZSH)
 */
rp_status rp_options_answer(const rp_options_program *program, const void *options, FILE *stream);

/**
 * Writes keys and values of the settings into an open object: members of groups that are settings.
 * @param all also of options that were not given and whose member is 0
 */
void rp_options_write_settings(const rp_options_program *program, const void *options, bool all,
                               rp_json *json);

/**
 * Writes keys and values of the settings of rows into an open object: those that are given or not
 * 0, but for rows with `own_setting`.
 * @param object that the rows' members are offsets into
 */
void rp_option_write_members(const rp_option *rows, uint32_t count, const void *object,
                             rp_json *json);

/** @return bytes that all settings take as JSON, at most. */
size_t rp_options_settings_size(const rp_options_program *program, const void *options);

/** Writes the value that an option has, as settings have it. @param row without `write` */
void rp_options_write_value(const rp_options_program *program, const void *options,
                            const rp_option *row, rp_json *json);

/** Writes the reference page of a program below its heading: usage, options by groups, notes, exit
 * statuses and an example. */
void rp_options_markdown(const rp_options_program *program, FILE *stream);
