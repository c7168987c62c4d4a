/* Servers whose GPUs are of several cards (`gpu_list`). */
#include "common/base/reason.h"
#include "common/inputs/gpu.h"
#include "common/program/limits.h"

#include <math.h>
#include <string.h>

#define SEPARATORS " ,"

struct rp_platform_cards {
    const rp_card *of[RP_LISTED_GPUS]; /* [count] GPUs of the same card share it */
    uint32_t count;                    /* names of the list, also beyond RP_LISTED_GPUS */
};

static const rp_card *find(const rp_platform_cards *cards, const char *name, size_t length)
{
    for (uint32_t i = 0; i < cards->count; i++) {
        const char *other = cards->of[i]->gpu.gpu;
        if (strlen(other) == length && strncmp(other, name, length) == 0) {
            return cards->of[i];
        }
    }
    return NULL;
}

/* Adds a GPU. `gpu` itself need not have a file: its keys may stand in the platform's. */
static rp_status add(const char *word, size_t length, const rp_platform *p,
                     const rp_platform_lines *at, rp_arena *arena, rp_platform_cards *cards)
{
    const rp_card *card = find(cards, word, length);
    if (card == NULL) {
        rp_card *fresh = NULL;
        const char *name = NULL;
        RP_TRY(rp_arena_alloc(arena, 1, sizeof *fresh, &fresh));
        RP_TRY(rp_arena_copy_text(arena, word, length, &name));
        if (strcmp(name, p->gpu) == 0) {
            *fresh = (rp_card){.gpu = *p};
        } else {
            RP_TRY(rp_platform_read_card(name, at, arena, fresh));
        }
        card = fresh;
    }
    cards->of[cards->count++] = card;
    return RP_OK;
}

/* Lists the memory of each card in the unit of the platform's key. The member becomes the least. */
static rp_status list_memory(const rp_platform_cards *cards, const rp_platform_lines *at,
                             rp_arena *arena, rp_platform *p)
{
    bool gib = at->lines[RP_PLATFORM_memory_gib] != 0;
    double *member = gib ? &p->memory_gib : &p->memory_gb;
    rp_config_numbers *list = gib ? &p->each.memory_gib : &p->each.memory_gb;
    double own = *member;
    bool differ = false;
    if (cards->count == 0 || p->each.memory_gib.count > 0 || p->each.memory_gb.count > 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, cards->count, sizeof *list->values, &list->values));
    for (uint32_t i = 0; i < cards->count; i++) {
        const rp_platform *card = &cards->of[i]->gpu;
        double value = !gib                   ? card->memory_gb
                       : card->memory_gib > 0 ? card->memory_gib
                                              : card->memory_gb / RP_GB_PER_GIB;
        list->values[i] = strcmp(card->gpu, p->gpu) == 0 ? own : value;
        differ |= list->values[i] != own;
        *member = list->values[i] < *member ? list->values[i] : *member;
    }
    list->count = differ ? cards->count : 0;
    list->is_list = differ;
    return RP_OK;
}

rp_status rp_platform_read_cards(const rp_platform_lines *at, rp_arena *arena, rp_platform *p,
                                 rp_platform_cards **cards_out)
{
    rp_platform_cards *cards = NULL;
    *cards_out = NULL;
    if (p->gpu_list == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *cards, &cards));
    for (const char *word = p->gpu_list; *(word += strspn(word, SEPARATORS)) != '\0';) {
        size_t length = strcspn(word, SEPARATORS);
        if (cards->count == RP_LISTED_GPUS) {
            rp_log_error_at(at->file, at->lines[RP_PLATFORM_gpu_list],
                            "'gpu_list' names more than %u GPUs; valid values are lists of up to "
                            "%u",
                            RP_LISTED_GPUS, RP_LISTED_GPUS);
            return RP_INPUT;
        }
        RP_TRY(add(word, length, p, at, arena, cards));
        word += length;
    }
    *cards_out = cards;
    return list_memory(cards, at, arena, p);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* A card's peak; that of `gpu` may have changed. */
static double peak_of(const rp_card *card, const rp_platform *p)
{
    bool own = strcmp(card->gpu.gpu, p->gpu) == 0;
    return own ? p->fp16_tflops_fp32_acc : card->gpu.fp16_tflops_fp32_acc;
}

rp_status rp_platform_check_cards(const rp_platform_cards *cards, const rp_platform_lines *at,
                                  const rp_platform *p, rp_reason *reason)
{
    uint32_t of_node = p->nodes > 0 ? p->gpus / p->nodes : p->gpus;
    if (cards == NULL) {
        return RP_OK;
    }
    if (cards->count != of_node) {
        return rp_refuse_at(reason, RP_INPUT, at->file, at->lines[RP_PLATFORM_gpu_list],
                            "'gpu_list' names %u GPUs of the %u of a node; valid values are names "
                            "of rpsim --list gpus, as many as a node has GPUs, up to %u",
                            cards->count, of_node, RP_LISTED_GPUS);
    }
    const rp_card *fastest = cards->of[0];
    for (uint32_t i = 1; i < cards->count; i++) {
        fastest = peak_of(cards->of[i], p) > peak_of(fastest, p) ? cards->of[i] : fastest;
    }
    const rp_card *own = find(cards, p->gpu, strlen(p->gpu));
    if (own == NULL || peak_of(own, p) < peak_of(fastest, p)) {
        return rp_refuse_at(
            reason, RP_INPUT, at->file, at->lines[RP_PLATFORM_gpu],
            "'gpu' is '%s', not the fastest of 'gpu_list'; valid values are names of the fastest: "
            "%s, with %.15g TFLOP/s as fp16_tflops_fp32_acc",
            p->gpu, fastest->gpu.gpu, peak_of(fastest, p));
    }
    return RP_OK;
}

/* ---- platforms of the cards ------------------------------------------------------------------ */

/* Makes the platform with a card's keys; its name says the card. A limit of power that is not that
 * of `gpu` holds for each card, but lets none draw more than its own. */
static rp_status make(const rp_card *card, const rp_card *own, const rp_platform_lines *at,
                      rp_platform_check check, const rp_platform *p, rp_arena *arena,
                      const rp_platform **platform_out, rp_reason *reason)
{
    rp_platform *made = NULL;
    rp_platform_lines lines = *at;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *made, &made));
    *made = *p;
    made->each.memory_gb.count = made->each.memory_gib.count = 0;
    *platform_out = made;
    if (strcmp(card->gpu.gpu, p->gpu) == 0) {
        return RP_OK;
    }
    rp_platform_put_card(card, made, &lines);
    if (p->power_limit_w != own->gpu.power_limit_w) {
        made->power_limit_w = fmin(made->power_limit_w, p->power_limit_w);
    }
    RP_TRY(rp_arena_print(arena, &made->name, "%s (%s)", p->name, made->gpu));
    return check(&lines, made, reason);
}

static bool is_alike(const rp_platform_cards *cards)
{
    for (uint32_t i = 1; i < cards->count; i++) {
        if (cards->of[i] != cards->of[0]) {
            return false;
        }
    }
    return true;
}

rp_status rp_platform_set_cards(const rp_platform_cards *cards, const rp_platform_lines *at,
                                rp_platform_check check, rp_arena *arena, rp_platform *p,
                                rp_reason *reason)
{
    const rp_platform **made = NULL;
    if (cards == NULL || is_alike(cards)) {
        return RP_OK;
    }
    const rp_card *own = find(cards, p->gpu, strlen(p->gpu));
    if (own == NULL) {
        return rp_broken(); /* rp_platform_check_cards */
    }
    RP_TRY(rp_arena_alloc(arena, cards->count, sizeof *made, &made));
    for (uint32_t i = 0; i < cards->count; i++) {
        uint32_t same = 0;
        while (cards->of[same] != cards->of[i]) {
            same++;
        }
        made[i] = made[same];
        if (same == i) {
            RP_TRY(make(cards->of[i], own, at, check, p, arena, &made[i], reason));
        }
    }
    p->cards = made;
    return RP_OK;
}
