#include "exec/gpu/turn.h"

void rpexec_gpu_turn_init(rpexec_gpu_turn *turn)
{
    turn->asked = turn->given = 0;
    pthread_mutex_init(&turn->lock, NULL);
    pthread_cond_init(&turn->moved, NULL);
}

void rpexec_gpu_turn_destroy(rpexec_gpu_turn *turn)
{
    pthread_cond_destroy(&turn->moved);
    pthread_mutex_destroy(&turn->lock);
}

void rpexec_gpu_turn_take(rpexec_gpu_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    uint64_t mine = turn->asked++;
    while (turn->given != mine) {
        pthread_cond_wait(&turn->moved, &turn->lock);
    }
    pthread_mutex_unlock(&turn->lock);
}

void rpexec_gpu_turn_give(rpexec_gpu_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->given++;
    pthread_cond_broadcast(&turn->moved); /* all wake up; the next in order goes on */
    pthread_mutex_unlock(&turn->lock);
}

uint64_t rpexec_gpu_turn_count(rpexec_gpu_turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    uint64_t count = turn->asked - turn->given;
    pthread_mutex_unlock(&turn->lock);
    return count;
}
