/** @file options_internal.h  rpsim's options, once. Not for other modules than options.c. */
#pragma once

/** X(enumerator, option, argument (NULL: none), help). The long options, --help and the parser. */
#define OPTION_LIST(X)                                                                             \
    X(SCHEDULE, "schedule", "NAME[,NAME…]|all", "what to simulate; several give a comparison")     \
    X(GPUS, "gpus", "N", "GPUs (the platform's)")                                                  \
    X(MICROBATCHES, "microbatches", "M", "microbatches per iteration (2 N)")                       \
    X(MICROBATCH_SIZE, "microbatch-size", "B", "sequences per microbatch (the cost table's)")      \
    X(SEQ_LEN, "seq-len", "S", "tokens per sequence (the cost table's)")                           \
    X(MODEL, "model", "NAME|FILE[,…]", "models (qwen3-1.7b)")                                      \
    X(PLATFORM, "platform", "NAME|FILE", "server (rtx4090x8)")                                     \
    X(COSTS, "costs", "NAME|FILE", "cost table (MODEL@GPU)")                                       \
    X(SET, "set", "CHANGE[,…]",                                                                    \
      "what if the cost table or the platform said otherwise: costs.KEY=N, costs.KEY*FACTOR, "     \
      "platform.KEY=N, platform.KEY*FACTOR with the keys of their files; may be repeated")         \
    X(PARTITION, "partition", "P|paper|even|auto|tuned",                                           \
      "layers per stage: 3,3,4,… or fwd…|bwd… (paper where "                                 \
      "it is listed, otherwise even); auto: RoundPipe's planner (rpplan) for roundpipe, within "   \
      "0.6 of the GPU memory; even for the other schedules, which it knows nothing of; tuned: "    \
      "the "                                                                                       \
      "best that a search finds, never worse than these")                                          \
    X(TUNE_BUDGET, "tune-budget", "E",                                                             \
      "simulations that --partition tuned may run (as many as take some seconds; at most 200000)") \
    X(STAGES, "stages", "S", "stages of an even partition (as many as GPUs, or near the layers)")  \
    X(FIDELITY, "fidelity", "stage|hardware",                                                      \
      "stage: per-layer times and one fixed hop; hardware: links, transfers and host (default)")   \
    X(CONFIG, "config", "paper",                                                                   \
      "batch, calls and optimizer of the published runs (hardware); "                              \
      "partition auto for roundpipe")                                                              \
    X(GLOBAL_BATCH, "global-batch", "B",                                                           \
      "sequences per optimizer step (hardware; calls x "                                           \
      "microbatches x microbatch size)")                                                           \
    X(ACCUMULATE, "accumulate", "A",                                                               \
      "calls that a step is split into, each of --microbatches "                                   \
      "(hardware; 1)")                                                                             \
    X(MAX_SEQLEN, "max-seqlen", NULL,                                                              \
      "the longest sequence that fits, in steps of 1024 tokens, and a run of it (hardware)")       \
    X(GRAIN, "grain", "stage|layer",                                                               \
      "recompute a stage at a time, or layer by layer from saved inputs of each (stage; "          \
      "data-parallel systems: layer)")                                                             \
    X(PIECE_MB, "piece-mb", "M",                                                                   \
      "largest piece of a parameter upload in MiB (hardware; 256, as RoundPipe's library has "     \
      "them; rpexec: 32)")                                                                         \
    X(RECOMPUTE, "recompute", "none|wait|early|all",                                               \
      "when a recompute may run (as published; wait "                                              \
      "and early for --schedule all)")                                                             \
    X(ITERATIONS, "iterations", "I",                                                               \
      "iterations (hardware: 16, and 1 with --torch-csv-out; stage: 1, and 16 with --optimizer "   \
      "async)")                                                                                    \
    X(OPTIMIZER, "optimizer", "sync|async", "barrier between iterations or none (sync)")           \
    X(ROUND, "round", "R|all", "microbatches per RoundPipe round (stage: N; hardware: all)")       \
    X(ROUND_START, "round-start", "free-first|rotate",                                             \
      "GPU that begins a round (stage: free-first; rotate with --round all and at hardware "       \
      "fidelity)")                                                                                 \
    X(JITTER, "jitter", "CV",                                                                      \
      "Monte Carlo: compute times vary, log-normal with mean 1 and this coefficient of variation " \
      "(0 to 2): 5th, 50th and 95th percentile of the iteration time, and how often each run "     \
      "beats each other")                                                                          \
    X(REPLICAS, "replicas", "R", "runs per schedule with --jitter (100)")                          \
    X(SLOW_GPU, "slow-gpu", "G*FACTOR",                                                            \
      "in the runs of --jitter, whose CV may be 0, compute of GPU G takes FACTOR (1 to 100) "      \
      "times "                                                                                     \
      "as long; the schedule does not know")                                                       \
    X(SEED, "seed", "K",                                                                           \
      "of --jitter and --partition tuned, stored with every run (0); nothing else is random")      \
    X(FORMAT, "format", "table|json|csv|kv", "output on stdout (table)")                           \
    X(EXPLAIN, "explain", NULL,                                                                    \
      "after the table: where the GPUs' time goes, the first cause of waiting, the critical path " \
      "and what would help most; with json the key explain")                                       \
    X(TRACE_OUT, "trace-out", "F", "Chrome/Perfetto trace")                                        \
    X(GANTT_OUT, "gantt-out", "F", "Gantt chart: .svg, .png or .pdf")                              \
    X(TIMELINE_OUT, "timeline-out", "F", "start and end of every op as CSV, for rpdiff")           \
    X(PROGRAM_OUT, "program-out", "F", "the program in text form")                                 \
    X(TORCH_CSV_OUT, "torch-csv-out", "F",                                                         \
      "the order of each GPU's forwards and backwards as a schedule CSV of PyTorch's pipelining")  \
    X(TORCH_CSV_DIALECT, "torch-csv-dialect",                                                      \
      "compute-only|lowered|lowered-waits|legacy|lowered-legacy",                                  \
      "of --torch-csv-out: computations alone; with transfers and FSDP's actions; with PyTorch "   \
      "2.15's waits besides; the first two as of 2024, B and BW for I and B (compute-only)")       \
    X(RECV_PLACEMENT, "recv-placement", "asap|just-in-time",                                       \
      "receives of a lowered CSV: where the send is issued, or before their use (asap)")           \
    X(CHAKRA_OUT, "chakra-out", "PREFIX",                                                          \
      "the run as Chakra execution traces, PREFIX.RANK.et (rpimport --chakra runs them)")          \
    X(PROGRAM_IN, "program-in", "F", "run this program instead of a schedule's")                   \
    X(TORCH_CSV_IN, "torch-csv-in", "F",                                                           \
      "run the orders of this schedule CSV of PyTorch's pipelining, in any of its dialects")       \
    X(TORCH_SIDECAR, "torch-sidecar", "F",                                                         \
      "JSON beside a schedule CSV with what that cannot say (schedule, layers of each stage, "     \
      "recompute): read with --torch-csv-in, otherwise written with --torch-csv-out")              \
    X(ALLOW_MULTI_RANK_STAGES, "allow-multi-rank-stages", NULL,                                    \
      "with these: stages may run on several ranks and have backward stages apart (RoundPipe)")    \
    X(DB, "db", "F", "add the runs to this SQLite store")                                          \
    X(DB_OPS, "db-ops", NULL, "with --db: every op of the timeline, too")                          \
    X(LIST, "list", "schedules|models|platforms|costs", "what there is")                           \
    X(FLOWS, "flows", "FILE|-",                                                                    \
      "when each flow of a JSON file of links and flows ends (max-min fair sharing)")              \
    X(CHECK, "check", NULL, "validate only")                                                       \
    X(HELP, "help", NULL, "this text")                                                             \
    X(VERSION, "version", NULL, "the version")
