/** @file turn.h  A lock that threads get in the order in which they have asked for it.
 *
 * The queues' threads of a part of a device take turns (driver.h). With a plain mutex, the thread
 * that computes would release it after each op and mostly have it again before another thread wakes
 * up: downloads that other GPUs wait for would be enqueued after all of the stage's computing.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

typedef struct rpexec_gpu_turn {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t asked; /**< turns that were asked for so far */
    uint64_t given; /**< turns that were given back so far */
} rpexec_gpu_turn;

/** Nobody has the turn. */
void rpexec_gpu_turn_init(rpexec_gpu_turn *turn);

/** Nobody may have the turn or wait for it. */
void rpexec_gpu_turn_destroy(rpexec_gpu_turn *turn);

/** Waits until everybody who has asked before has given the turn back. */
void rpexec_gpu_turn_take(rpexec_gpu_turn *turn);

/** Gives back the turn that this thread has taken. */
void rpexec_gpu_turn_give(rpexec_gpu_turn *turn);

/** @return threads that have the turn or wait for it */
uint64_t rpexec_gpu_turn_count(rpexec_gpu_turn *turn);
