// ---- data.js: the runs of the page ------------------------------------------------------------
// Names are JSON; the ops of a run are columns of numbers, compressed (common/page/data.c has the
// format). All times here are picoseconds, whole and exact: runs too long for that come in
// nanoseconds.

// Control characters and marks that turn the direction of text are shown, not obeyed (rp_page_write_text).
const unsafe = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const head = JSON.parse(document.getElementById("data").textContent,
    (key, value) => (typeof value === "string" ? value.replace(unsafe, "\ufffd") : value));

async function inflate(base64) {
    const packed = Uint8Array.from(atob(base64), c => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Numbers of seven bits a byte, the lowest first. The lowest bit of all is the sign, and is taken
// out first: twice a time could be more than a double counts exactly.
class Numbers {
    constructor(bytes) {
        this.bytes = bytes;
        this.at = 0;
    }

    next() {
        let byte = this.bytes[this.at++];
        const negative = byte & 1;
        let value = (byte & 127) >> 1;
        for (let scale = 64; byte > 127; scale *= 128) {
            byte = this.bytes[this.at++];
            value += (byte & 127) * scale;
        }
        return negative ? -1 - value : value;
    }

    fill(array, scale = 1) {
        for (let i = 0; i < array.length; i++) {
            array[i] = this.next() * scale;
        }
        return array;
    }
}

const columnTypes = {
    gap: Float64Array, duration: Float64Array, held: Float64Array, bytes: Float64Array, kind: Uint8Array,
    colour: Uint8Array, reason: Uint8Array, stage: Uint16Array, iteration: Uint16Array, layer: Uint16Array,
    microbatch: Uint32Array, cause: Int32Array,
};
const columnsOfTime = ["gap", "duration", "held"];

// Gaps and durations become starts and ends, queue by queue.
function placeOps(run, columns) {
    run.start = columns.gap;
    run.end = columns.duration;
    run.queueOf = new Uint32Array(run.ops);
    run.queues.forEach((queue, number) => {
        let at = 0;
        for (let op = queue.begin; op < queue.end; op++) {
            run.start[op] += at;
            at = run.end[op] += run.start[op];
            run.queueOf[op] = number;
        }
    });
}

// The critical path: pieces without a gap between them, from 0 to the makespan.
function readPath(run, numbers, count, unit) {
    const path = { op: new Int32Array(count), start: new Float64Array(count), end: new Float64Array(count), step: new Uint8Array(count) };
    run.onPath = new Uint8Array(run.ops);
    let op = 0;
    let at = 0;
    for (let i = 0; i < count; i++) {
        op += numbers.next();
        path.op[i] = op;
        path.start[i] = at;
        at += numbers.next() * unit;
        path.end[i] = at;
        path.step[i] = numbers.next();
        run.onPath[op] = 1;
    }
    run.path = path;
}

// Bytes in use at each place, with what is there beside the buffers of the program. The run may take others: then `most`
// is their peak, and the curve has no scale.
function readMemory(run, numbers, unit) {
    run.places = [];
    for (let place = 0; place <= run.gpus; place++) {
        const host = place === run.gpus;
        const count = numbers.next();
        const fixed = host ? run.hostFixedBytes : run.gpuFixedBytes;
        const overhead = host ? 0 : run.gpuOverhead ?? 0;
        const time = new Float64Array(count + 1);
        const bytes = new Float64Array(count + 1).fill(fixed);
        let live = 0;
        let peak = 0;
        for (let i = 1; i <= count; i++) {
            time[i] = time[i - 1] + numbers.next() * unit;
            live += numbers.next();
            bytes[i] = fixed + live + Math.floor(overhead * live);
            peak = bytes[i] > bytes[peak] ? i : peak;
        }
        const most = host ? bytes[peak] : run.gpuPeaks[place] ?? bytes[peak];
        run.places.push({
            name: host ? "host" : `GPU ${place}`, host, time, bytes, peak, most, scaled: most === bytes[peak],
            limit: host ? run.hostBytes : run.gpuBytes,
        });
    }
}

async function readRun(number) {
    const run = { ...head.runs[number], number };
    const numbers = new Numbers(await inflate(document.getElementById(`ops-${number}`).textContent));
    const unit = run.unitPs;
    const columns = {};
    for (const name of head.columns) {
        columns[name] = numbers.fill(new columnTypes[name](run.ops), columnsOfTime.includes(name) ? unit : 1);
    }
    Object.assign(run, columns);
    run.queues = run.queues.map(([kind, gpu, begin, end]) => ({ kind, gpu, begin, end }));
    placeOps(run, columns);
    for (let op = 0; op < run.ops; op++) {
        run.cause[op] = run.cause[op] === 0 ? -1 : run.cause[op] + op;
    }
    run.length = run.end.reduce((a, b) => Math.max(a, b), 0);
    readPath(run, numbers, run.pieces, unit);
    readMemory(run, numbers, unit);
    return run;
}

const loading = new Map(); // number of a run to its promise

function loadRun(number) {
    if (!loading.has(number)) {
        loading.set(number, readRun(number));
    }
    return loading.get(number);
}

// "2F0", "2F0/5" for its layer 5 alone, "2F0@1" in iteration 1: as rp_op_name has it.
function opName(run, op) {
    const kind = head.kinds[run.kind[op]];
    let name = `${run.stage[op]}${kind.text}${run.microbatch[op]}`;
    if (kind.host) {
        name = run.microbatch[op] === 0 ? kind.text : `${kind.text}${run.microbatch[op]}`;
    }
    name += run.layer[op] !== 0 ? `/${run.layer[op]}` : "";
    return name + (run.iteration[op] !== 0 ? `@${run.iteration[op]}` : "");
}

function queueName(run, op) {
    const queue = run.queues[run.queueOf[op]];
    return `${queue.gpu < 0 ? "host" : `GPU ${queue.gpu}`}, ${head.queueKinds[queue.kind]}`;
}

// The first of [begin, end) whose value is above a limit, in values that rise.
function firstAbove(values, limit, begin, end) {
    while (begin < end) {
        const middle = (begin + end) >> 1;
        if (values[middle] > limit) {
            end = middle;
        } else {
            begin = middle + 1;
        }
    }
    return begin;
}

// The first op of [begin, end) that ends after a time; the ops of a queue do not overlap.
function firstEndingAfter(run, begin, end, time) {
    return firstAbove(run.end, time, begin, end);
}
