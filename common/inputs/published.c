#include "common/inputs/published.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Digits of a published number without comma and point, and the count that its last digit stands
 * for: "1.7B" is 17 steps of 100,000,000. */
typedef struct published {
    uint64_t steps;
    uint64_t step;
    unsigned decimals;
    char suffix; /* 0: none */
} published;

static bool add_digit(published *number, char digit)
{
    return !__builtin_mul_overflow(number->steps, 10, &number->steps) &&
           !__builtin_add_overflow(number->steps, (uint64_t)(digit - '0'), &number->steps);
}

/* Reads "20,914,757,184" or "1234": commas stand only before groups of three digits. */
static bool read_whole(const char **at, published *number)
{
    size_t run = strspn(*at, "0123456789");
    bool grouped = (*at)[run] == ',';
    if (run == 0 || (grouped && run > 3)) {
        return false;
    }
    for (;;) {
        for (size_t i = 0; i < run; i++) {
            if (!add_digit(number, *(*at)++)) {
                return false;
            }
        }
        if (**at != ',') {
            return true;
        }
        ++*at;
        run = strspn(*at, "0123456789");
        if (run != 3) {
            return false;
        }
    }
}

static bool read_fraction(const char **at, published *number)
{
    if (**at != '.') {
        return true;
    }
    ++*at;
    for (; **at >= '0' && **at <= '9'; ++*at) {
        if (!add_digit(number, **at)) {
            return false;
        }
        number->decimals++;
    }
    return number->decimals > 0;
}

static bool read_suffix(const char **at, published *number)
{
    static const char suffixes[] = "KMBT";
    number->step = 1;
    const char *suffix = **at ? strchr(suffixes, **at) : NULL;
    if (suffix) {
        number->suffix = *(*at)++;
        for (const char *s = suffixes; s <= suffix; s++) {
            number->step *= 1000;
        }
    }
    for (unsigned i = 0; i < number->decimals; i++) {
        if (number->step % 10 != 0) {
            return false; /* a fraction of a parameter */
        }
        number->step /= 10;
    }
    return **at == '\0';
}

static void print_expected(const published *number, uint64_t steps, char *buffer, size_t size)
{
    uint64_t scale = 1;
    for (unsigned i = 0; i < number->decimals; i++) {
        scale *= 10;
    }
    char fraction[32] = "";
    if (number->decimals > 0) {
        snprintf(fraction, sizeof fraction, ".%0*" PRIu64, (int)number->decimals, steps % scale);
    }
    char suffix[2] = {number->suffix, '\0'};
    snprintf(buffer, size, "%" PRIu64 "%s%s", steps / scale, fraction, suffix);
}

bool rp_published_matches(const char *text, uint64_t count, char *expected_out, size_t size,
                          bool *valid_out)
{
    published number = {0};
    expected_out[0] = '\0';
    *valid_out =
        read_whole(&text, &number) && read_fraction(&text, &number) && read_suffix(&text, &number);
    if (!*valid_out) {
        return false;
    }
    uint64_t steps = count / number.step + (count % number.step >= number.step - number.step / 2);
    print_expected(&number, steps, expected_out, size);
    return steps == number.steps;
}

const char *rp_published_schedule(const char *framework)
{
    static const struct {
        const char *framework;
        const char *schedule;
    } names[] = {
        {"deepspeed-zero2", "zero2"}, {"fsdp-zero3", "fsdp"}, {"roundpipe-sync", "roundpipe"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i].framework, framework) == 0) {
            return names[i].schedule;
        }
    }
    return framework;
}
