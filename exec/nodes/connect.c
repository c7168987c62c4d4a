/* Connections of all processes to each other. */
#define _GNU_SOURCE /* accept4 */
#include "exec/nodes/nodes_internal.h"

#include "common/base/log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HOST_SIZE 256
#define CONNECT_S 30

/* Place where a process listens. */
typedef struct address {
    char host[HOST_SIZE];
    uint16_t port;
    uint64_t token; /* of process 0 counts: strangers do not have it */
} address;

/* First words on a connection. */
typedef struct greeting {
    uint64_t token;
    uint32_t rank;
    uint32_t size; /* of messages: the same program */
} greeting;

/* Another one in each run: with it processes of this run know each other. */
static uint64_t make_token(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t ns = (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
    return ns * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 40;
}

static rp_status failed(const char *call)
{
    rp_log_error("processes of this run cannot reach each other: %s: %s", call, strerror(errno));
    return RP_TOOL;
}

/* ---- listening --------------------------------------------------------------------------------
 */

static rp_status listen_anywhere(int *socket_out, uint16_t *port_out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) {
        return failed("socket");
    }
    *socket_out = listener;
    if (bind(listener, (const struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, (int)RPEXEC_MAX_NODES) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &length) != 0) {
        return failed("bind");
    }
    *port_out = ntohs(at.sin_port);
    return RP_OK;
}

static rp_status accept_one(int listener, int *socket_out)
{
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    int ready = poll(&waiting, 1, 1000 * CONNECT_S);
    if (ready == 0) {
        errno = ETIMEDOUT;
    }
    *socket_out = ready == 1 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
    return *socket_out < 0 ? failed("accept") : RP_OK;
}

static int dial(const struct addrinfo *to)
{
    int s = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && connect(s, to->ai_addr, to->ai_addrlen) != 0) {
        close(s);
        s = -1;
    }
    return s;
}

/* On one machine names need not lead anywhere. */
static rp_status connect_to(const address *to, bool same_host, int *socket_out)
{
    char port[8];
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const char *host = same_host ? "127.0.0.1" : to->host;
    (void)snprintf(port, sizeof port, "%u", to->port);
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        rp_log_error("processes of this run cannot reach each other: host %s: %s", host,
                     gai_strerror(error));
        return RP_TOOL;
    }
    *socket_out = -1;
    for (const struct addrinfo *a = found; a != NULL && *socket_out < 0; a = a->ai_next) {
        *socket_out = dial(a);
    }
    freeaddrinfo(found);
    return *socket_out < 0 ? failed("connect") : RP_OK;
}

/* ---- first words ------------------------------------------------------------------------------
 */

static bool give(int s, const void *bytes, size_t count)
{
    return send(s, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
}

static bool take(int s, void *bytes, size_t count)
{
    return recv(s, bytes, count, MSG_WAITALL) == (ssize_t)count;
}

/* Small messages go at once; silence of a machine that is gone is noticed within seconds. */
static void set_up(int s)
{
    const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 2}, {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                   {IPPROTO_TCP, TCP_KEEPCNT, 5},  {IPPROTO_TCP, TCP_USER_TIMEOUT, 7000}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)setsockopt(s, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
    }
}

static rp_status greet(rpexec_nodes *n, const address *to, uint64_t token, uint32_t other)
{
    rpexec_link *link = &n->links[other];
    const greeting own = {.token = token, .rank = n->rank, .size = sizeof(rpexec_message)};
    RP_TRY(connect_to(to, link->beside, &link->socket));
    set_up(link->socket);
    return give(link->socket, &own, sizeof own) ? RP_OK : failed("a connection's first words");
}

/* Strangers are sent away. */
static rp_status be_greeted(rpexec_nodes *n, int listener, uint64_t token)
{
    for (;;) {
        greeting theirs = {0};
        int s = -1;
        RP_TRY(accept_one(listener, &s));
        set_up(s);
        const struct timeval patience = {.tv_sec = 5};
        (void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        bool known = take(s, &theirs, sizeof theirs) && theirs.token == token &&
                     theirs.size == sizeof(rpexec_message) && theirs.rank < n->count &&
                     n->links[theirs.rank].socket < 0;
        if (!known) {
            close(s);
            continue;
        }
        n->links[theirs.rank].socket = s;
        const struct timeval none = {0};
        (void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
        return RP_OK;
    }
}

/* ---- all of it --------------------------------------------------------------------------------
 */

static rp_status connect_all(rpexec_nodes *n, int listener, const address *all)
{
    uint64_t token = all[0].token;
    for (uint32_t other = 0; other < n->count; other++) {
        n->links[other].beside = strcmp(all[other].host, all[n->rank].host) == 0;
    }
    for (uint32_t other = 0; other < n->rank; other++) {
        RP_TRY(greet(n, &all[other], token, other));
    }
    for (uint32_t later = n->rank + 1; later < n->count; later++) {
        RP_TRY(be_greeted(n, listener, token));
    }
    return RP_OK;
}

rp_status rpexec_nodes_connect(rpexec_nodes *n, const rpexec_launch *launch)
{
    address own = {0};
    address *all = NULL;
    int listener = -1;
    RP_TRY(rp_arena_alloc(n->arena, n->count, sizeof *all, &all));
    if (gethostname(own.host, sizeof own.host - 1) != 0) {
        return failed("gethostname");
    }
    own.token = make_token();
    rp_status status = listen_anywhere(&listener, &own.port);
    status = status == RP_OK ? launch->exchange(&own, sizeof own, all) : status;
    status = status == RP_OK ? connect_all(n, listener, all) : status;
    if (listener >= 0) {
        close(listener);
    }
    return status;
}
