/* The rows of op kinds and queue kinds, and the tables that are made of them. */
#include "common/program/program.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <string.h>

#define TWO(X) X(FORWARD, 1) X(SEND, 2)
#define ON(kind) (1 << RP_QUEUE_##kind)

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
    }
}

/* Expected: the kinds that common/program/README.md and cli.md name so. */
Test(op_kinds, groups_have_the_kinds_of_the_documents)
{
    char passes[32] = "";
    char backward[32] = "";
    char back[32] = "";
    int parameters = 0;
    for (rp_op_kind kind = 0; kind < RP_OP_KIND_COUNT; kind++) {
        strcat(passes, rp_op_kind_is_pass(kind) ? rp_op_kind_text(kind) : "");
        strcat(backward, rp_op_kind_is_backward(kind) ? rp_op_kind_text(kind) : "");
        strcat(back, rp_op_kind_goes_back(kind) ? rp_op_kind_text(kind) : "");
        parameters += rp_op_kind_moves_parameters(kind) ? 1 : 0;
    }
    cr_expect(eq(str, passes, "FRBIW"));
    cr_expect(eq(str, backward, "BIW"));
    cr_expect(eq(str, back, "BI"));
    cr_expect(eq(int, parameters, 3));
    cr_expect(rp_op_kind_moves_parameters(RP_OP_UPLOAD_PARAM_GRAD));
    cr_expect(not(rp_op_kind_moves_parameters(RP_OP_ALL_GATHER)));
}

/* RP_OP_ROWS_CHECK compares this with the number of kinds. */
Test(op_kinds, rows_of_a_table_are_counted)
{
    cr_expect(eq(int, 0 TWO(RP_OP_ROW), 2));
    cr_expect(eq(int, 0 RP_OP_KIND_LIST(RP_OP_ROW), RP_OP_KIND_COUNT));
}

Test(op_kinds, queues_are_carried)
{
    for (rp_queue_kind kind = 0; kind < RP_QUEUE_KIND_COUNT; kind++) {
        bool host = kind == RP_QUEUE_DISPATCH || kind == RP_QUEUE_OPTIMIZER ||
                    kind == RP_QUEUE_NETWORK;
        cr_expect(eq(int, rp_queue_kind_carrier(kind) == RP_CARRIER_HOST, host));
        cr_expect(eq(int, rp_queue_kind_on_gpu(kind), !host));
    }
    cr_expect(eq(int, (int)rp_queue_kind_carrier(RP_QUEUE_ACT_UPLOAD), RP_CARRIER_LINK_UP));
    cr_expect(eq(int, (int)rp_queue_kind_carrier(RP_QUEUE_DOWNLOAD), RP_CARRIER_LINK_DOWN));
}
