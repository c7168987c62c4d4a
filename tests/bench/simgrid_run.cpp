/* The SimGrid side of bench_simgrid: the same ops and transfers in SimGrid 3.32 (s4u). There are no
 * actors: activities are created when they are ready and followed up in callbacks, which is the
 * cheapest way to drive SimGrid. Its model is set up as tests/golden/contention.json says
 * ("about"). */
#include "tests/bench/simgrid_run.h"

#include <algorithm>
#include <deque>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <time.h>
#include <vector>

namespace sg = simgrid::s4u;

namespace
{

constexpr double gpu_flops = 1e12;

struct copy_engine {
    bool busy = false;
    std::deque<uint32_t> waiting; /* queues */
};

struct simulation {
    const simgrid_case &of;
    std::vector<sg::Host *> gpus;
    sg::Host *memory = nullptr;
    std::vector<uint32_t> next; /* op at the head of each queue */
    std::vector<char> running;
    std::vector<sg::ActivityPtr> kept; /* two per queue: the last activity may still be ending */
    std::vector<copy_engine> engines;
    uint32_t ended = 0;
    double makespan_s = 0;

    explicit simulation(const simgrid_case &c)
        : of(c), running(c.queue_count), kept(2 * c.queue_count), engines(2 * c.gpus)
    {
    }

    static std::string number(const char *what, uint32_t index)
    {
        return what + std::to_string(index);
    }

    void begin()
    {
        next.assign(of.queue_begin, of.queue_begin + of.queue_count);
        ended = 0;
        for (uint32_t q = 0; q < of.queue_count; q++) {
            try_start(q);
        }
    }

    void make_platform()
    {
        auto *zone = sg::create_full_zone("server");
        memory = zone->create_host("memory", gpu_flops);
        sg::Link *root = nullptr;
        if (of.root_Bps > 0) {
            root = zone->create_link("root", of.root_Bps)->set_latency(0);
            root->seal();
        }
        for (uint32_t g = 0; g < of.gpus; g++) {
            auto *gpu = zone->create_host(number("gpu", g), gpu_flops);
            gpus.push_back(gpu);
            for (bool up : {true, false}) {
                auto *link = zone->create_link(number(up ? "up" : "down", g), of.link_Bps);
                link->set_latency(0)->seal();
                std::vector<sg::LinkInRoute> links{sg::LinkInRoute(link)};
                if (root != nullptr) {
                    links.emplace_back(root);
                }
                auto *from = up ? memory : gpu;
                auto *to = up ? gpu : memory;
                zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, links,
                                false);
            }
        }
        zone->seal();
    }

    void keep(uint32_t op, const sg::ActivityPtr &activity)
    {
        kept[2 * of.queue_of[op] + op % 2] = activity;
    }

    void begin_transfer(uint32_t op)
    {
        uint32_t engine = of.queue_engine[of.queue_of[op]];
        auto *gpu = gpus[engine / 2];
        bool up = engine % 2 == 0;
        if (of.bytes[op] == 0) {
            finish(op);
            return;
        }
        auto comm = sg::Comm::sendto_init(up ? memory : gpu, up ? gpu : memory);
        comm->set_payload_size(static_cast<uint64_t>(of.bytes[op]));
        comm->set_data(reinterpret_cast<void *>(static_cast<uintptr_t>(op) + 1));
        keep(op, comm);
        comm->vetoable_start();
    }

    void begin_compute(uint32_t op)
    {
        double seconds = of.seconds[op];
        if (seconds == 0) {
            finish(op);
        } else if (of.timers != 0) {
            simgrid::kernel::timer::Timer::set(sg::Engine::get_clock() + seconds,
                                               [this, op] { finish(op); });
        } else {
            auto exec = sg::Exec::init();
            exec->set_flops_amount(seconds * gpu_flops)->set_host(gpus[of.queue_of[op] % of.gpus]);
            exec->set_data(reinterpret_cast<void *>(static_cast<uintptr_t>(op) + 1));
            keep(op, exec);
            exec->vetoable_start();
        }
    }

    void try_start(uint32_t queue)
    {
        uint32_t op = next[queue];
        if (running[queue] != 0 || op == of.queue_end[queue] || of.pending[op] != 0) {
            return;
        }
        running[queue] = 1;
        uint32_t engine = of.queue_engine[queue];
        if (engine == SIMGRID_NO_ENGINE) {
            begin_compute(op);
        } else if (engines[engine].busy) {
            engines[engine].waiting.push_back(queue);
        } else {
            engines[engine].busy = true;
            begin_transfer(op);
        }
    }

    void release(uint32_t engine)
    {
        auto &copies = engines[engine];
        copies.busy = !copies.waiting.empty();
        if (copies.busy) {
            uint32_t queue = copies.waiting.front();
            copies.waiting.pop_front();
            begin_transfer(next[queue]);
        }
    }

    void finish(uint32_t op)
    {
        uint32_t queue = of.queue_of[op];
        ended++;
        makespan_s = sg::Engine::get_clock();
        running[queue] = 0;
        next[queue]++;
        if (of.queue_engine[queue] != SIMGRID_NO_ENGINE) {
            release(of.queue_engine[queue]);
        }
        try_start(queue);
        for (uint32_t d = of.dependent_begin[op]; d < of.dependent_begin[op + 1]; d++) {
            uint32_t dependent = of.dependents[d];
            if (--of.pending[dependent] == 0 && next[of.queue_of[dependent]] == dependent) {
                try_start(of.queue_of[dependent]);
            }
        }
    }
};

template <typename Activity> void follow(simulation &s, const Activity &activity)
{
    auto tag = reinterpret_cast<uintptr_t>(activity.template get_data<void>());
    if (tag != 0) {
        s.finish(static_cast<uint32_t>(tag - 1));
    }
}

double cpu_s()
{
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

} // namespace

void bench_run_simgrid(const simgrid_case *of, double least_s, simgrid_result *result_out)
{
    int argc = 2;
    char name[] = "bench_simgrid";
    char quiet[] = "--log=xbt_cfg.thres:warning";
    char *argv[] = {name, quiet, nullptr};
    sg::Engine engine(&argc, argv);
    for (const char *setting :
         {"network/model:CM02", "network/TCP-gamma:0", "network/bandwidth-factor:1",
          "network/latency-factor:1", "network/weight-S:0", "network/crosstraffic:0",
          "surf/precision:1e-13", "maxmin/precision:1e-10"}) {
        sg::Engine::set_config(setting);
    }
    simulation s(*of);
    s.make_platform();
    sg::Activity::on_completion_cb([&s](const sg::Activity &activity) {
        if (const auto *comm = dynamic_cast<const sg::Comm *>(&activity)) {
            follow(s, *comm);
        } else if (const auto *exec = dynamic_cast<const sg::Exec *>(&activity)) {
            follow(s, *exec);
        }
    });
    std::vector<uint32_t> pending(of->pending, of->pending + of->op_count);
    double took_s = 0;
    auto run = [&]() { /* returns the makespan */
                       std::copy(pending.begin(), pending.end(), of->pending);
                       double begin_s = cpu_s();
                       double from_s = sg::Engine::get_clock();
                       s.begin();
                       engine.run();
                       took_s += cpu_s() - begin_s;
                       return s.makespan_s - from_s;
    };
    *result_out = {run(), 0, 0, s.ended}; /* the warm-up, whose clock begins at 0 */
    took_s = 0;
    do {
        run();
        result_out->ended = s.ended == result_out->ended ? s.ended : 0;
        result_out->runs++;
    } while (took_s < least_s);
    result_out->cpu_s = took_s / result_out->runs;
}
