/** @file clock.h  Wall time of the simulator itself. The only clock in sim/: results never see it.
 */
#pragma once

/** @return seconds since an arbitrary moment, monotonic. */
double rpsim_clock_s(void);
