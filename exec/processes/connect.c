/* Connections of all processes to each other. In each pair the process of higher rank calls the
 * process of lower rank. Both know the run's token, give their rank and the rank that they want,
 * and confirm the other's greeting:
 *
 *     caller: greeting    called: greeting    caller: greeting again
 *
 * All callers are served side by side, so that strangers that send nothing, half a greeting or
 * something else delay nobody. A single time limit covers all connections. */
#define _GNU_SOURCE /* accept4 */
#include "exec/processes/processes_internal.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_S 30
#define MOST_ADDRESSES 16u
#define MOST_CALLERS 128u           /* without a whole greeting; then the oldest is cut off */
#define TRY_NS INT64_C(3000000000)  /* in which an address must take a call */
#define AGAIN_NS INT64_C(100000000) /* from a failed call to the next */

/* The first message between processes, equally long in all versions. */
typedef struct introduction {
    char build[192];
    char host[128];
    char system[64];   /* boot id of its kernel; empty: not known */
    char network[64];  /* its network namespace; empty: not known */
    uint64_t token[2]; /* token of the run is that of process 0; strangers do not have it */
    char rest[48];
} introduction;

_Static_assert(sizeof(introduction) == 512, "other versions exchange as many bytes");

/* Addresses and port at which a process listens. */
typedef struct address {
    uint32_t count;
    uint32_t ip[MOST_ADDRESSES]; /* in network byte order */
    uint16_t port;
} address;

typedef struct greeting {
    uint64_t token[2];
    uint32_t from;
    uint32_t to;
} greeting;

/* A connection that is being made. */
typedef struct call {
    int socket; /* -1: none */
    bool connecting;
    bool known;    /* of a caller: its greeting is good, and has been answered */
    uint32_t rank; /* rank of the other process; of a caller once it is known */
    uint32_t at;   /* of a call: the address that is tried */
    size_t got;    /* bytes of the greeting that is read */
    greeting theirs;
    int64_t since_ns; /* of a call: its beginning; without a socket the time at which the next call
                         may begin */
} call;

typedef struct party {
    rpexec_processes *n;
    const introduction *all; /* [count] */
    address *addresses;      /* [count] */
    call *calls;             /* [count] to lower ranks */
    call callers[MOST_CALLERS];
    uint32_t caller_count;
    int listener;
    int64_t until_ns;
    int error; /* errno of the last call that failed */
} party;

static rp_status failed(const char *what)
{
    rp_log_error("processes of this run cannot reach each other: %s: %s", what, strerror(errno));
    return RP_TOOL;
}

/* ---- names and addresses --------------------------------------------------------------------- */

static rp_status introduce(const char *build, introduction *own)
{
    struct stat network;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (gethostname(own->host, sizeof own->host - 1) != 0) {
        return failed("gethostname");
    }
    if (getrandom(own->token, sizeof own->token, 0) != (ssize_t)sizeof own->token) {
        return failed("getrandom");
    }
    if (file != NULL) {
        (void)fscanf(file, "%63s", own->system);
        (void)fclose(file);
    }
    if (stat("/proc/self/ns/net", &network) == 0) {
        (void)snprintf(own->network, sizeof own->network, "%llu",
                       (unsigned long long)network.st_ino);
    }
    (void)snprintf(own->build, sizeof own->build, "%s", build);
    return RP_OK;
}

static bool is_beside(const introduction *a, const introduction *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->system, b->system) == 0;
}

static bool shares_loopback(const introduction *a, const introduction *b)
{
    return is_beside(a, b) && strcmp(a->network, b->network) == 0;
}

static bool is_loopback(uint32_t ip)
{
    return ntohl(ip) >> 24 == IN_LOOPBACKNET;
}

static void add_address(address *a, uint32_t ip)
{
    bool there = false;
    for (uint32_t i = 0; i < a->count; i++) {
        there |= a->ip[i] == ip;
    }
    if (!there && a->count < MOST_ADDRESSES) {
        a->ip[a->count++] = ip;
    }
}

/* Adds the addresses of all interfaces: a name may not lead to a process, but an address does. */
static void add_interfaces(address *a)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) {
        return;
    }
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
            (i->ifa_flags & (unsigned)IFF_UP) != 0) {
            struct sockaddr_in at;
            memcpy(&at, i->ifa_addr, sizeof at);
            if (!is_loopback(at.sin_addr.s_addr)) {
                add_address(a, at.sin_addr.s_addr);
            }
        }
    }
    freeifaddrs(list);
}

/* A host's name comes first: it may have been set up for a particular one of several networks. A
 * loopback address of another machine is left out, since it leads to this machine. */
static void look_up(const party *p, uint32_t other)
{
    const introduction *theirs = &p->all[other];
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    address *a = &p->addresses[other];
    address whole = {.port = a->port};
    if (shares_loopback(theirs, &p->all[p->n->rank])) {
        add_address(&whole, htonl(INADDR_LOOPBACK));
    } else if (getaddrinfo(theirs->host, NULL, &hints, &found) == 0) {
        for (const struct addrinfo *i = found; i != NULL; i = i->ai_next) {
            struct sockaddr_in at;
            memcpy(&at, i->ai_addr, sizeof at);
            if (!is_loopback(at.sin_addr.s_addr)) {
                add_address(&whole, at.sin_addr.s_addr);
            }
        }
        freeaddrinfo(found);
    }
    for (uint32_t i = 0; i < a->count; i++) {
        add_address(&whole, a->ip[i]);
    }
    *a = whole;
}

/* Listens only on the loopback interface if all processes run on this machine, so that no other
 * machine can connect. */
static rp_status listen_for(const party *p, int *socket_out, address *own)
{
    bool alone = true;
    for (uint32_t i = 0; i < p->n->count; i++) {
        alone &= shares_loopback(&p->all[i], &p->all[p->n->rank]);
    }
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(alone ? INADDR_LOOPBACK : INADDR_ANY)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) {
        return failed("socket");
    }
    *socket_out = listener;
    if (bind(listener, (const struct sockaddr *)&at, sizeof at) != 0 ||
        listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &length) != 0) {
        return failed("bind");
    }
    if (!alone) {
        add_interfaces(own);
    }
    own->port = ntohs(at.sin_port);
    return RP_OK;
}

/* ---- greetings ------------------------------------------------------------------------------- */

/* Sends small messages at once, and notices within seconds that a machine is gone (watch.c does so,
 * too). */
static void set_up(int s)
{
    const struct {
        int level, name, value;
    } options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                   {SOL_SOCKET, SO_KEEPALIVE, 1},
                   {IPPROTO_TCP, TCP_KEEPIDLE, 2},
                   {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                   {IPPROTO_TCP, TCP_KEEPCNT, 5}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)setsockopt(s, options[i].level, options[i].name, &options[i].value,
                         sizeof options[i].value);
    }
}

static bool greet(const party *p, const call *c)
{
    greeting own = {.from = p->n->rank, .to = c->rank};
    memcpy(own.token, p->all[0].token, sizeof own.token);
    return send(c->socket, &own, sizeof own, MSG_NOSIGNAL) == (ssize_t)sizeof own;
}

/* Reads the bytes of a greeting that have arrived. @return false if the other process is gone, or
 * is a stranger */
static bool hear(const party *p, call *c, bool *whole_out)
{
    unsigned char *at = (unsigned char *)&c->theirs;
    ssize_t got = recv(c->socket, at + c->got, sizeof c->theirs - c->got, 0);
    *whole_out = false;
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    c->got += (size_t)got;
    *whole_out = c->got == sizeof c->theirs;
    const greeting *g = &c->theirs;
    return !*whole_out ||
           (memcmp(g->token, p->all[0].token, sizeof g->token) == 0 && g->to == p->n->rank);
}

static void keep(const party *p, call *c)
{
    rpexec_link *link = &p->n->links[c->rank];
    if (link->socket >= 0) { /* an older connection of the same caller */
        (void)close(link->socket);
    }
    link->socket = c->socket;
    c->socket = -1;
}

/* ---- calling --------------------------------------------------------------------------------- */

static void begin_call(const party *p, call *c, int64_t now)
{
    const address *a = &p->addresses[c->rank];
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(a->port), .sin_addr.s_addr = a->ip[c->at]};
    c->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    c->since_ns = now;
    c->got = 0;
    c->connecting = true;
    if (c->socket >= 0) {
        set_up(c->socket);
        (void)connect(c->socket, (const struct sockaddr *)&to, sizeof to); /* poll reports the
                                                                              result */
    }
}

static void give_up_call(party *p, call *c, int error, int64_t now)
{
    p->error = error != 0 ? error : p->error;
    if (c->socket >= 0) {
        (void)close(c->socket);
    }
    c->socket = -1;
    c->at = (c->at + 1) % p->addresses[c->rank].count;
    c->since_ns = now + AGAIN_NS;
}

/* Continues a call whose connection stands, has failed, or has brought an answer. */
static void go_on_calling(party *p, call *c, int64_t now)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (c->connecting) {
        (void)getsockopt(c->socket, SOL_SOCKET, SO_ERROR, &error, &size);
        c->connecting = false;
        if (error != 0 || !greet(p, c)) {
            give_up_call(p, c, error, now);
        }
        return;
    }
    bool whole = false;
    if (!hear(p, c, &whole) || (whole && (c->theirs.from != c->rank || !greet(p, c)))) {
        give_up_call(p, c, 0, now);
    } else if (whole) {
        keep(p, c);
    }
}

/* ---- being called ---------------------------------------------------------------------------- */

static void send_away(party *p, uint32_t caller)
{
    if (p->callers[caller].socket >= 0) {
        (void)close(p->callers[caller].socket);
    }
    p->caller_count--;
    memmove(&p->callers[caller], &p->callers[caller + 1],
            (p->caller_count - caller) * sizeof p->callers[0]);
}

/* Accepts a caller; callers stay in the order of their arrival. @return false if no caller is left
 * to accept */
static bool take_caller(party *p)
{
    int s = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    bool full = s < 0 && (errno == EMFILE || errno == ENFILE);
    if (full || (s >= 0 && p->caller_count == MOST_CALLERS)) {
        uint32_t oldest = 0;
        while (oldest < p->caller_count && p->callers[oldest].known) {
            oldest++;
        }
        if (oldest < p->caller_count) {
            send_away(p, oldest);
        }
    }
    if (s >= 0 && p->caller_count == MOST_CALLERS) {
        (void)close(s);
    } else if (s >= 0) {
        set_up(s);
        p->callers[p->caller_count++] = (call){.socket = s};
    }
    return s >= 0;
}

/* @return false if the caller is a stranger, or a process that is gone */
static bool listen_to(const party *p, call *c)
{
    bool whole = false;
    if (!hear(p, c, &whole)) {
        return false;
    }
    if (!whole) {
        return true;
    }
    uint32_t from = c->theirs.from;
    c->got = 0;
    if (c->known) {
        keep(p, c);
        return false; /* it is a link now */
    }
    c->known = from > p->n->rank && from < p->n->count;
    c->rank = from;
    return c->known && greet(p, c);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* @return processes that are not connected yet */
static uint32_t missing(const party *p, uint32_t begin, uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t i = begin; i < end; i++) {
        count += i != p->n->rank && p->n->links[i].socket < 0 ? 1 : 0;
    }
    return count;
}

/* Begins calls that are due, and gives up calls that last too long. */
static void make_calls(party *p, int64_t now)
{
    for (uint32_t i = 0; i < p->n->rank; i++) {
        call *c = &p->calls[i];
        if (p->n->links[i].socket >= 0) {
            continue;
        }
        if (c->socket < 0 && now >= c->since_ns) {
            begin_call(p, c, now);
        } else if (c->socket >= 0 && now - c->since_ns > TRY_NS) {
            give_up_call(p, c, ETIMEDOUT, now);
        }
    }
}

/* Waits until something happens, 50 ms at most, and serves the connections on which it has
 * happened. */
static void go_on(party *p)
{
    struct pollfd polls[1 + RPEXEC_MAX_PROCESSES + MOST_CALLERS];
    uint32_t ranks = p->n->rank;
    uint32_t callers = p->caller_count;
    polls[0] = (struct pollfd){.fd = p->listener, .events = POLLIN};
    for (uint32_t i = 0; i < ranks; i++) {
        short events = p->calls[i].connecting ? POLLOUT : POLLIN;
        polls[1 + i] = (struct pollfd){.fd = p->calls[i].socket, .events = events};
    }
    for (uint32_t i = 0; i < callers; i++) {
        polls[1 + ranks + i] = (struct pollfd){.fd = p->callers[i].socket, .events = POLLIN};
    }
    if (poll(polls, 1 + ranks + callers, 50) <= 0) {
        return;
    }
    int64_t now = rpexec_processes_now_ns();
    for (uint32_t i = 0; i < ranks; i++) {
        if (polls[1 + i].revents != 0) {
            go_on_calling(p, &p->calls[i], now);
        }
    }
    for (uint32_t i = callers; i-- > 0;) {
        if (polls[1 + ranks + i].revents != 0 && !listen_to(p, &p->callers[i])) {
            send_away(p, i);
        }
    }
    for (uint32_t taken = 0; polls[0].revents != 0 && taken < MOST_CALLERS / 2; taken++) {
        if (!take_caller(p)) {
            break;
        }
    }
}

static rp_status too_late(const party *p, uint32_t seconds)
{
    for (uint32_t i = 0; i < p->n->count; i++) {
        if (i != p->n->rank && p->n->links[i].socket < 0) {
            bool calls = i < p->n->rank;
            rp_log_error("process %u of %u, on %s, %s within %u s%s%s", i, p->n->count,
                         p->all[i].host, calls ? "did not answer" : "did not connect", seconds,
                         calls && p->error != 0 ? ": " : "",
                         calls && p->error != 0 ? strerror(p->error) : "");
        }
    }
    return RP_TOOL;
}

static rp_status meet_all(party *p)
{
    int64_t limit = CONNECT_S * INT64_C(1000000000);
    int64_t patience = p->n->patience_ns;
    limit = patience != 0 && patience < limit ? patience : limit;
    p->until_ns = rpexec_processes_now_ns() + limit;
    for (uint32_t i = 0; i < p->n->rank; i++) {
        p->calls[i] = (call){.socket = -1, .rank = i};
        look_up(p, i);
        if (p->addresses[i].count == 0) {
            rp_log_error("process %u of %u is on %s, which has no address that leads there", i,
                         p->n->count, p->all[i].host);
            return RP_TOOL;
        }
    }
    while (missing(p, 0, p->n->count) != 0) {
        int64_t now = rpexec_processes_now_ns();
        if (now > p->until_ns) {
            return too_late(p, (uint32_t)(limit / INT64_C(1000000000)));
        }
        make_calls(p, now);
        go_on(p);
    }
    return RP_OK;
}

/* Closes all other sockets, and makes connections blocking for the threads that read and write. */
static void finish(party *p)
{
    while (p->caller_count > 0) {
        send_away(p, p->caller_count - 1);
    }
    for (uint32_t i = 0; p->calls != NULL && i < p->n->rank; i++) {
        if (p->calls[i].socket >= 0) {
            (void)close(p->calls[i].socket);
        }
    }
    for (uint32_t i = 0; i < p->n->count; i++) {
        int s = p->n->links[i].socket;
        if (s >= 0) {
            (void)fcntl(s, F_SETFL, fcntl(s, F_GETFL) & ~O_NONBLOCK);
        }
    }
    if (p->listener >= 0) {
        (void)close(p->listener);
    }
}

/* Compares the builds of all processes; every process does so and logs it. */
static rp_status compare_builds(const party *p)
{
    for (uint32_t i = 1; i < p->n->count; i++) {
        if (strcmp(p->all[i].build, p->all[0].build) == 0) {
            continue;
        }
        if (p->n->rank == 0) {
            rp_log_error("process 0 of %u is %s, process %u is %s; valid is the same program in "
                         "all processes",
                         p->n->count, p->all[0].build, i, p->all[i].build);
        }
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpexec_processes_connect(rpexec_processes *n, const rpexec_launch *launch,
                                   const char *build)
{
    introduction own = {.build = ""};
    introduction *all = NULL;
    address here = {.count = 0};
    party *p = NULL;
    RP_TRY(rp_arena_alloc(n->arena, 1, sizeof *p, &p));
    RP_TRY(rp_arena_alloc(n->arena, n->count, sizeof *all, &all));
    p->n = n;
    p->all = all;
    p->listener = -1;
    RP_TRY(rp_arena_alloc(n->arena, n->count, sizeof *p->addresses, &p->addresses));
    RP_TRY(rp_arena_alloc(n->arena, n->count, sizeof *p->calls, &p->calls));
    for (uint32_t i = 0; i < n->count; i++) {
        p->calls[i].socket = -1;
    }
    RP_TRY(introduce(build, &own));
    RP_TRY(launch->exchange(&own, sizeof own, all));
    RP_TRY(compare_builds(p));
    for (uint32_t other = 0; other < n->count; other++) {
        n->links[other].beside = is_beside(&all[other], &all[n->rank]);
    }
    rp_status status = listen_for(p, &p->listener, &here); /* port 0 tells of a failure */
    rp_status exchanged = launch->exchange(&here, sizeof here, p->addresses);
    status = status == RP_OK ? exchanged : status;
    for (uint32_t i = 0; status == RP_OK && i < n->count; i++) {
        status = p->addresses[i].port != 0 ? RP_OK : RP_LOST;
    }
    status = status == RP_OK ? meet_all(p) : status;
    finish(p);
    return status;
}
