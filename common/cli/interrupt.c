#include "common/cli/interrupt.h"

#include "common/base/text.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t noted;

/* Handlers call only functions that are async-signal-safe in POSIX. */

static void die(int number)
{
    rp_output_remove_temporaries();
    (void)raise(number); /* SA_RESETHAND has restored the default action */
}

static void leave(int number)
{
    rp_output_remove_temporaries();
    _exit(128 + number);
}

static void note(int number)
{
    static const char text[] = "\nending after this step; once more to end at once\n";
    noted = number;
    (void)signal(SIGINT, leave);
    (void)signal(SIGTERM, leave);
    if (isatty(STDERR_FILENO)) {
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
    }
}

static void set(int number, void (*handler)(int), int flags)
{
    struct sigaction before;
    struct sigaction now = {.sa_handler = handler, .sa_flags = flags};
    (void)sigemptyset(&now.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        (void)sigaction(number, &now, NULL);
    }
}

void rp_interrupt_ends(void)
{
    set(SIGINT, die, (int)SA_RESETHAND);
    set(SIGTERM, die, (int)SA_RESETHAND);
    set(SIGHUP, die, (int)SA_RESETHAND);
}

void rp_interrupt_heed(void)
{
    noted = 0;
    set(SIGINT, note, SA_RESTART);
    set(SIGTERM, note, SA_RESTART);
}

void rp_interrupt_exits(void)
{
    set(SIGINT, leave, 0);
    set(SIGTERM, leave, 0);
}

int rp_interrupt_signal(void)
{
    return (int)noted;
}
