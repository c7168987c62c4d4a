/** @file interrupt.h  Effects of SIGINT and SIGTERM on a program.
 *
 * At first they end the program at once, as by default, after removing the temporary files of its
 * outputs. A program that can stop in good order calls rp_interrupt_heed when its long work begins,
 * and checks rp_interrupt_signal between the parts of the work.
 */
#pragma once

/**
 * From here on SIGINT, SIGTERM and SIGHUP remove the temporary files of open outputs before they
 * end the program. A signal that does not have its default action stays as it is.
 */
void rp_interrupt_ends(void);

/**
 * From here on the first SIGINT or SIGTERM is only noted; the second exits at once with 128 + its
 * number. Signals that are ignored (nohup, background jobs) stay ignored.
 */
void rp_interrupt_heed(void);

/**
 * From here on SIGINT and SIGTERM exit at once with 128 + their number, temporary files removed:
 * as rp_interrupt_ends, but seen by the caller as an exit and not as a death.
 */
void rp_interrupt_exits(void);

/** @return the signal that rp_interrupt_heed has noted; 0: none. */
int rp_interrupt_signal(void);
