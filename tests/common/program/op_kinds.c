/* The rows of op kinds and queue kinds, and tables made of them. */
#include "common/program/program.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <string.h>

#define TWO(X) X(FORWARD, 1) X(SEND, 2)
#define ON(kind) (1 << RP_QUEUE_##kind)

static bool goes_round_twice(rp_op_kind kind)
{
    return rp_op_kind_passes(kind) == 2;
}

Test(op_kinds, rows_agree_with_classes)
{
    for (rp_op_kind kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        const rp_op_row *row = &rp_op_kinds[kind];
        bool transfer = row->op_class == RP_CLASS_TRANSFER;
        int host = ON(OPTIMIZER) | ON(DISPATCH);
        int queues = row->queues;
        cr_expect(eq(int, transfer, row->way != RP_WAY_NONE), "%s", row->text);
        cr_expect(ne(int, queues, 0), "%s", row->text);
        cr_expect(eq(int, queues == ON(COMPUTE), row->op_class == RP_CLASS_COMPUTE), "%s",
                  row->text);
        cr_expect(eq(int, queues == host || queues == ON(NETWORK), row->op_class == RP_CLASS_HOST),
                  "%s", row->text);
        cr_expect(le(int, rp_op_kind_is_backward(kind), rp_op_kind_is_pass(kind)), "%s", row->text);
        cr_expect(le(int, rp_op_kind_goes_back(kind), rp_op_kind_is_backward(kind)), "%s",
                  row->text);
        cr_expect(eq(int, row->group != 0, row->op_class == RP_CLASS_COLLECTIVE), "%s", row->text);
        cr_expect(le(int, row->host_rate != RP_HOST_RATE_SHARED, row->op_class == RP_CLASS_HOST),
                  "%s", row->text);
    }
}

/* Expected kinds are those of common/program/README.md, cli.md and the header's comments; the two
 * rounds of an all-reduce are from Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms",
 * 2009. */
Test(op_kinds, groups_have_the_kinds_of_the_documents)
{
    static const struct {
        bool (*is)(rp_op_kind kind);
        const char *kinds;
    } groups[] = {
        {rp_op_kind_is_forward, "F"},
        {rp_op_kind_is_recompute, "R"},
        {rp_op_kind_is_pass, "F R B I W"},
        {rp_op_kind_is_backward, "B I W"},
        {rp_op_kind_goes_back, "B I"},
        {rp_op_kind_is_full_backward, "B"},
        {rp_op_kind_leaves_weights, "I"},
        {rp_op_kind_is_weight_part, "W"},
        {rp_op_kind_is_update, "U"},
        {rp_op_kind_moves_parameters, "UPLOAD_PARAMS UPLOAD_PARAM_GRAD DOWNLOAD_PARAM_GRAD"},
        {rp_op_kind_uploads_weights, "UPLOAD_PARAMS"},
        {rp_op_kind_uploads_sums, "UPLOAD_PARAM_GRAD"},
        {rp_op_kind_downloads_sums, "DOWNLOAD_PARAM_GRAD"},
        {rp_op_kind_sends, "SEND"},
        {rp_op_kind_receives, "RECV"},
        {rp_op_kind_collects, "COLLECT"},
        {rp_op_kind_uses_port, "NETWORK_REDUCE"},
        {rp_op_kind_is_joint, "ALL_GATHER REDUCE_SCATTER ALL_REDUCE NETWORK_REDUCE ALL_TO_ALL"},
        {goes_round_twice, "ALL_REDUCE"},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char kinds[128] = "";
        for (rp_op_kind kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
            if (groups[i].is(kind)) {
                strcat(kinds, kinds[0] != '\0' ? " " : "");
                strcat(kinds, rp_op_kind_text(kind));
            }
        }
        cr_expect(eq(str, kinds, groups[i].kinds));
    }
}

/* In place of a microbatch host ops name their layer; in place of a layer collectives name their
 * number (formats.md). */
Test(op_kinds, an_op_has_a_layer_or_a_number)
{
    const rp_op pass = {.kind = RP_OP_BACKWARD, .microbatch = 3, .part = 7};
    const rp_op host = {.kind = RP_OP_REFRESH, .microbatch = 3};
    const rp_op sum = {.kind = RP_OP_ALL_REDUCE, .microbatch = 3, .part = 7};
    const rp_op update = {.kind = RP_OP_UPDATE};
    const rp_op gather = {.kind = RP_OP_ALL_GATHER, .microbatch = 3};
    cr_expect(eq(u32, rp_op_layer(&pass), 7));
    cr_expect(eq(u32, rp_op_repeat(&pass), 1));
    cr_expect(eq(u32, rp_op_layer(&host), 3));
    cr_expect(eq(u32, rp_op_repeat(&host), 1));
    cr_expect(eq(u32, rp_op_layer(&sum), 0));
    cr_expect(eq(u32, rp_op_repeat(&sum), 7));
    cr_expect(eq(u32, rp_op_layer(&gather), 0));
    cr_expect(eq(u32, rp_op_repeat(&gather), 1));
    cr_expect(rp_op_has_microbatch(&pass));
    cr_expect(rp_op_has_microbatch(&gather));
    cr_expect(not(rp_op_has_microbatch(&host)));
    cr_expect(not(rp_op_has_microbatch(&update)));
}

Test(op_kinds, names_are_found)
{
    for (rp_op_kind kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        rp_op_kind found = RP_OP_KIND_COUNT;
        cr_expect(rp_op_kind_parse(rp_op_kind_text(kind), &found));
        cr_expect(eq(int, (int)found, (int)kind));
    }
    rp_op_kind found = RP_OP_KIND_COUNT;
    cr_expect(not(rp_op_kind_parse("UPLOAD", &found)));
    cr_expect(eq(int, (int)found, RP_OP_KIND_COUNT));
}

/* RP_OP_ROWS_CHECK compares this with the number of kinds. */
Test(op_kinds, rows_of_a_table_are_counted)
{
    cr_expect(eq(int, 0 TWO(RP_OP_ROW), 2));
}

Test(op_kinds, queues_are_carried)
{
    for (rp_queue_kind kind = 0; kind < RP_QUEUE_KIND_COUNT; kind++) {
        bool host =
            kind == RP_QUEUE_DISPATCH || kind == RP_QUEUE_OPTIMIZER || kind == RP_QUEUE_NETWORK;
        cr_expect(eq(int, rp_queue_kind_carrier(kind) == RP_CARRIER_HOST, host));
        cr_expect(eq(int, rp_queue_kind_on_gpu(kind), !host));
    }
    cr_expect(eq(int, (int)rp_queue_kind_carrier(RP_QUEUE_ACT_UPLOAD), RP_CARRIER_LINK_UP));
    cr_expect(eq(int, (int)rp_queue_kind_carrier(RP_QUEUE_DOWNLOAD), RP_CARRIER_LINK_DOWN));
}
