// ---- input.js: pointer and keys ---------------------------------------------------------------

const chart = document.getElementById("chart");
const pointers = new Map(); // of touching fingers and the pressed mouse: id to place
let moved = 0; // pixels since the press: a click moves less than four
let pinch = 0; // distance of two fingers

function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
}

// The op below a place of the canvas; null: none.
function opBelow({ x, y }) {
    if (x < view.gutter || y < axisHeight) {
        return null;
    }
    const lane = laneAt(y + scroller.scrollTop);
    const op = lane !== null ? opAt(lane, x) : null;
    return op !== null ? { run: lane.run, op } : null;
}

function hover(event) {
    const target = opBelow(placeOf(event));
    if (target === null) {
        hideHint();
    } else {
        showHint(target.run, target.op, event.clientX, event.clientY);
    }
}

function spread() {
    const [a, b] = [...pointers.values()];
    return Math.max(Math.hypot(a.x - b.x, a.y - b.y), 1);
}

canvas.addEventListener("pointerdown", event => {
    if (event.button === 0) {
        canvas.setPointerCapture(event.pointerId);
        pointers.set(event.pointerId, placeOf(event));
        moved = pointers.size === 1 ? 0 : 4;
        pinch = pointers.size === 2 ? spread() : 0;
        hideHint();
    }
});

canvas.addEventListener("pointermove", event => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) {
        hover(event);
        return;
    }
    const place = placeOf(event);
    pointers.set(event.pointerId, place);
    moved += Math.hypot(place.x - before.x, place.y - before.y);
    if (pointers.size === 2) {
        const now = spread();
        const middle = [...pointers.values()].reduce((sum, each) => sum + each.x / 2, 0);
        zoom(pinch / now, middle);
        pinch = now;
    } else if (moved >= 4) {
        chart.classList.add("drags");
        pan(before.x - place.x);
        if (event.pointerType === "mouse") {
            scroller.scrollTop += before.y - place.y;
        }
    }
});

function release(event) {
    const pressed = pointers.delete(event.pointerId);
    chart.classList.remove("drags");
    if (pressed && event.type === "pointerup" && moved < 4) {
        const target = opBelow(placeOf(event));
        chart.focus({ preventScroll: true });
        select(target?.run ?? null, target?.op ?? null);
    }
}

canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", hideHint);
canvas.addEventListener("dblclick", event => zoom(0.4, placeOf(event).x));

// The wheel scrolls the page, as everywhere, unless Ctrl is held or the timeline was clicked.
canvas.addEventListener("wheel", event => {
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
        event.preventDefault();
        pan(sideways * unit);
    } else if (event.ctrlKey || event.metaKey || document.activeElement === chart) {
        event.preventDefault();
        zoom(Math.exp(event.deltaY * unit * 0.0015), placeOf(event).x);
    }
    hideHint();
}, { passive: false });

scroller.addEventListener("scroll", redraw);

// ---- keys ----

// The op before or behind the selected one in its lane; without one, that in the middle.
function selectNeighbour(step) {
    if (view.selected === null) {
        selectInLane(view.lanes.find(lane => lane.queue !== null));
        return;
    }
    const { run, op } = view.selected;
    const queue = run.queues[run.queueOf[op]];
    if (op + step >= queue.begin && op + step < queue.end) {
        select(run, op + step, "see");
    }
}

// The op of a lane that runs in the middle of the selected one, or else nearest to it.
function selectInLane(lane) {
    if (lane === undefined || lane.queue === null) {
        return;
    }
    const { run, queue } = lane;
    const chosen = view.selected;
    const time = chosen !== null ? (chosen.run.start[chosen.op] + chosen.run.end[chosen.op]) / 2 : (view.from + view.to) / 2;
    const op = firstEndingAfter(run, queue.begin, queue.end, time);
    select(run, Math.min(op, queue.end - 1), "see");
}

function selectLane(step) {
    const lanes = view.lanes.filter(lane => lane.queue !== null);
    const at = view.selected === null ? -1 : lanes.indexOf(laneOf(view.selected.run, view.selected.op));
    selectInLane(at < 0 ? lanes[0] : lanes[at + step]);
}

const keys = {
    ArrowLeft: event => (event.shiftKey ? selectNeighbour(-1) : pan(-0.1 * plotWidth())),
    ArrowRight: event => (event.shiftKey ? selectNeighbour(1) : pan(0.1 * plotWidth())),
    ArrowUp: () => selectLane(-1),
    ArrowDown: () => selectLane(1),
    "+": () => zoomAtSelected(0.6),
    "=": () => zoomAtSelected(0.6),
    "-": () => zoomAtSelected(1 / 0.6),
    Home: () => showWhole(),
    Enter: () => followCause(),
    Escape: () => {
        select(null, null);
        endSearch();
    },
};

// Around the selected op where it can be seen, otherwise around the middle.
function zoomAtSelected(factor) {
    const { run, op } = view.selected ?? {};
    const x = run !== undefined ? xOf((run.start[op] + run.end[op]) / 2) : -1;
    zoom(factor, x >= view.gutter && x <= view.width ? x : undefined);
}

chart.addEventListener("keydown", event => {
    const action = keys[event.key];
    if (action !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        hideHint();
        action(event);
    }
});

document.addEventListener("keydown", event => {
    const writes = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "/" && !writes && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        field.focus();
        field.select();
    }
});
