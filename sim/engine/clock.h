/** @file clock.h  Wall time of the simulator itself. This is the only clock in sim/, and results
 * never depend on it. */
#pragma once

/** @return seconds since an arbitrary moment, monotonic. */
double rpsim_clock_s(void);
