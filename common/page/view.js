// ---- view.js: what is shown, and where --------------------------------------------------------

const view = {
    runs: [], // one, or two on the same axis
    lanes: [], // { run, queue | null for its critical path, label, y, height }
    from: 0, // picoseconds at the left edge of the plot
    to: 1,
    length: 1, // of the longest run
    width: 300, // of the canvas, in CSS pixels
    gutter: 100, // for labels, left of the plot
    height: 0, // of all lanes
    allLanes: false,
    emphasizePath: false,
    selected: null, // { run, op }
    matches: null, // of the search: { run, ops as a Set } for the shown runs
};

const axisHeight = 22;
const shortest = 1000; // picoseconds that the plot shows at least

function plotWidth() {
    return Math.max(view.width - view.gutter, 1);
}

function xOf(time) {
    return view.gutter + (time - view.from) / (view.to - view.from) * plotWidth();
}

function timeAt(x) {
    return view.from + (x - view.gutter) / plotWidth() * (view.to - view.from);
}

// A span of time, moved and cut so that it lies within the runs; a little may be seen beyond them.
function show(from, to) {
    const margin = view.length * 0.01;
    const span = Math.min(Math.max(to - from, shortest), view.length + 2 * margin);
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(middle - span / 2, -margin), view.length + margin - span);
    view.to = view.from + span;
    redraw();
}

function showWhole() {
    show(0, view.length * 1.005);
}

function isWhole() {
    return view.to - view.from >= view.length;
}

// `factor` below 1 shows less time; what is at x stays there.
function zoom(factor, x = view.gutter + plotWidth() / 2) {
    const time = timeAt(x);
    const span = Math.max((view.to - view.from) * factor, shortest);
    const share = (x - view.gutter) / plotWidth();
    show(time - share * span, time + (1 - share) * span);
}

function pan(pixels) {
    const time = pixels / plotWidth() * (view.to - view.from);
    show(view.from + time, view.to + time);
}

// ---- lanes ----

function addLane(run, queue, label, height) {
    view.lanes.push({ run, queue, label, height, y: view.height });
    view.height += height;
}

// The lanes of one GPU, or of the host (-1), run after run.
function addPlace(place) {
    for (const run of view.runs) {
        const suffix = view.runs.length > 1 ? ` ${run.name}` : "";
        const gpu = view.gutter < 100 && suffix !== "" ? "" : "GPU ";
        const queues = run.queues.filter(queue => queue.gpu === place && queue.end > queue.begin);
        queues.sort((a, b) => a.kind - b.kind);
        for (const queue of queues) {
            const computes = head.queueKinds[queue.kind] === "compute";
            if (computes || view.allLanes) {
                const kind = head.queueKinds[queue.kind];
                const label = computes ? `${gpu}${place}${suffix}` : `${place < 0 ? "host " : ""}${kind}${suffix}`;
                addLane(run, queue, label, computes ? 22 : 15);
            }
        }
    }
}

function layOutLanes() {
    view.lanes = [];
    view.height = axisHeight;
    for (const run of view.runs) {
        if (run.path.op.length > 0) {
            addLane(run, null, view.runs.length > 1 ? `path ${run.name}` : "critical path", 15);
        }
    }
    for (let gpu = 0; gpu < Math.max(...view.runs.map(run => run.gpus)); gpu++) {
        addPlace(gpu);
    }
    addPlace(-1);
    view.height += 4;
}

function laneAt(y) {
    return view.lanes.find(lane => y >= lane.y && y < lane.y + lane.height) ?? null;
}

function laneOf(run, op) {
    const queue = run.queues[run.queueOf[op]];
    return view.lanes.find(lane => lane.run === run && lane.queue === queue) ?? null;
}

// The op of a lane at x, or the nearest one within a few pixels; null: there is none.
function opAt(lane, x) {
    const time = timeAt(x);
    const near = 3 * (view.to - view.from) / plotWidth();
    if (lane.queue === null) {
        const path = lane.run.path;
        const piece = firstAbove(path.end, time, 0, path.end.length);
        return time >= 0 && piece < path.op.length ? path.op[piece] : null;
    }
    const { run, queue } = lane;
    const after = firstEndingAfter(run, queue.begin, queue.end, time);
    let best = null;
    let least = near;
    for (const op of [after, after - 1]) {
        if (op >= queue.begin && op < queue.end) {
            const distance = Math.max(run.start[op] - time, time - run.end[op], 0);
            if (distance < least || (distance === 0 && best === null)) {
                best = op;
                least = distance;
            }
        }
    }
    return best;
}

// ---- selection ----

// Selects an op; `look` also brings it into view, "close" so that it takes a good part of it.
function select(run, op, look = "") {
    view.selected = op === null ? null : { run, op };
    if (op !== null && laneOf(run, op) === null && !view.allLanes) {
        setAllLanes(true);
    }
    if (op !== null && look !== "") {
        const start = run.start[op];
        const end = run.end[op];
        const least = Math.max(end - start, shortest) * 1.2;
        const span = look === "close" ? Math.max(4 * (end - start), shortest) : Math.max(view.to - view.from, least);
        if (look === "close" || start < view.from || end > view.to || span > view.to - view.from) {
            show((start + end - span) / 2, (start + end + span) / 2);
        }
        scrollToLane(laneOf(run, op));
    }
    describeSelected();
    redraw();
}
