/** @file each.h  RPEXEC_EACH(m, (KIND, name), ...): applies m to each of up to twelve pairs. */
#pragma once

#define RPEXEC_EACH_1(m, a) m a
#define RPEXEC_EACH_2(m, a, ...) m a RPEXEC_EACH_1(m, __VA_ARGS__)
#define RPEXEC_EACH_3(m, a, ...) m a RPEXEC_EACH_2(m, __VA_ARGS__)
#define RPEXEC_EACH_4(m, a, ...) m a RPEXEC_EACH_3(m, __VA_ARGS__)
#define RPEXEC_EACH_5(m, a, ...) m a RPEXEC_EACH_4(m, __VA_ARGS__)
#define RPEXEC_EACH_6(m, a, ...) m a RPEXEC_EACH_5(m, __VA_ARGS__)
#define RPEXEC_EACH_7(m, a, ...) m a RPEXEC_EACH_6(m, __VA_ARGS__)
#define RPEXEC_EACH_8(m, a, ...) m a RPEXEC_EACH_7(m, __VA_ARGS__)
#define RPEXEC_EACH_9(m, a, ...) m a RPEXEC_EACH_8(m, __VA_ARGS__)
#define RPEXEC_EACH_10(m, a, ...) m a RPEXEC_EACH_9(m, __VA_ARGS__)
#define RPEXEC_EACH_11(m, a, ...) m a RPEXEC_EACH_10(m, __VA_ARGS__)
#define RPEXEC_EACH_12(m, a, ...) m a RPEXEC_EACH_11(m, __VA_ARGS__)
#define RPEXEC_EACH_OF(a, b, c, d, e, f, g, h, i, j, k, l, chosen, ...) chosen
#define RPEXEC_EACH(m, ...)                                                                        \
    RPEXEC_EACH_OF(__VA_ARGS__, RPEXEC_EACH_12, RPEXEC_EACH_11, RPEXEC_EACH_10, RPEXEC_EACH_9,     \
                   RPEXEC_EACH_8, RPEXEC_EACH_7, RPEXEC_EACH_6, RPEXEC_EACH_5, RPEXEC_EACH_4,      \
                   RPEXEC_EACH_3, RPEXEC_EACH_2, RPEXEC_EACH_1, )                                  \
    (m, __VA_ARGS__)
