#include "common/base/log.h"
#include "common/base/crew.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A broken invariant names its place relative to the sources' root, wherever the build folder is.
 */
Test(log, broken_invariants_say_where)
{
    char messages[256];
    char expected[64];
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rp_broken();
    rp_log_capture_end();
    (void)snprintf(expected, sizeof expected, "at tests/common/base/log.c:%d; ", __LINE__ - 2);
    cr_expect(eq(int, status, RP_BROKEN));
    cr_expect(strstr(messages, expected) != NULL, "%s", messages);
}

/* Other programs' messages end with a newline; inner newlines stay visible. */
Test(log, newlines_at_the_end_are_dropped)
{
    char messages[256];
    rp_log_capture_begin(messages, sizeof messages);
    rp_log_error("%s", "child: failed\r\n\n");
    rp_log_error("a\nb\xe2\x80\xae");
    rp_log_capture_end();
    cr_expect(strstr(messages, "child: failed\n") != NULL, "%s", messages);
    cr_expect(strstr(messages, "a\\x0ab\\xe2\\x80\\xae\n") != NULL, "%s", messages);
    cr_expect(strstr(messages, "failed\\x0d") == NULL, "%s", messages);
}

/* Both threads run a job at the same time, so one of them is not the caller's. */
static rp_status meet(void *context, uint32_t job)
{
    pthread_barrier_wait(context);
    rp_log_error("job %u", job);
    return RP_OK;
}

Test(log, threads_of_a_crew_say_it_where_the_caller_listens, .timeout = 20)
{
    char messages[256];
    char after[64];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 2);
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rp_crew_run(2, 2, meet, &barrier);
    rp_log_capture_end();
    pthread_barrier_destroy(&barrier);
    cr_expect(eq(int, status, RP_OK));
    cr_expect(strstr(messages, "job 0\n") != NULL, "%s", messages);
    cr_expect(strstr(messages, "job 1\n") != NULL, "%s", messages);
    rp_log_capture_begin(after, sizeof after); /* later messages go elsewhere */
    rp_log_error("later");
    rp_log_capture_end();
    cr_expect(strstr(messages, "later") == NULL, "%s", messages);
    cr_expect(eq(str, after, "later\n"));
}
