// ---- draw.js: the canvases --------------------------------------------------------------------

const canvas = document.getElementById("lanes");
const curve = document.getElementById("curve");
const scroller = document.getElementById("scroll");
const dark = matchMedia("(prefers-color-scheme: dark)");
let colours = {}; // of the page, from its style sheet
let fills = [];
let inks = [];

// Colours of ops are those of the Gantt chart; the darkest and the lightest change places at night.
function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "ink", "soft", "line", "back", "mark", "grid"]) {
        colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
    fills = [...head.fills];
    inks = [...head.inks];
    if (dark.matches) {
        const idle = head.colours.indexOf("idle");
        const optimizer = head.colours.indexOf("optimizer");
        const weight = head.colours.indexOf("weight gradient");
        [fills[idle], fills[optimizer], inks[optimizer]] = ["#2b2f34", "#e8e8e8", "black"];
        [fills[weight], inks[weight]] = ["#a673d9", "black"];
    }
}

let waiting = false;

function redraw() {
    if (!waiting) {
        waiting = true;
        requestAnimationFrame(() => {
            waiting = false;
            draw();
        });
    }
}

// Makes a canvas as large as it is shown, in pixels of the screen; null where it is not shown.
function prepare(element, width, height) {
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (element.width !== w || element.height !== h) {
        element.width = w;
        element.height = h;
        element.style.height = `${height}px`;
    }
    const context = element.getContext("2d", { alpha: false });
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    context.textBaseline = "middle";
    return context;
}

// ---- axis ----

// The distance of ticks: 1, 2 or 5 times a power of ten, about 90 pixels apart.
function tickStep(span) {
    const least = span * 90 / plotWidth();
    const power = 10 ** Math.floor(Math.log10(least));
    return power * [1, 2, 5, 10].find(factor => factor * power >= least);
}

const units = [[1e12, "s"], [1e9, "ms"], [1e6, "\u00b5s"], [1e3, "ns"], [1, "ps"]];

function tickText(time, step) {
    const [size, name] = units.find(([size]) => step >= size / 100 && Math.abs(view.to) >= size) ?? units[units.length - 1];
    const decimals = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
    return `${(time / size).toFixed(decimals)} ${name}`;
}

function drawAxis(context, height) {
    const step = tickStep(view.to - view.from);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    for (let i = Math.ceil(view.from / step); i * step <= view.to; i++) {
        const x = Math.round(xOf(i * step)) + 0.5;
        context.fillStyle = colours.grid;
        context.fillRect(x, axisHeight - 4, 1, height - axisHeight + 4);
        context.fillStyle = colours.soft;
        if (x > view.gutter - 1 && x < view.width - 20) {
            context.fillText(tickText(i * step, step), Math.max(x, view.gutter + 24), axisHeight / 2 - 1);
        }
    }
}

// ---- ops ----

// What is narrower than this is drawn together, each pixel in the mean colour of its time.
const narrow = 2;
const faintness = 0.22; // of ops that are not on the critical path, while that is emphasized

// The boxes of one lane. Wide ones are sorted by colour, so that the canvas changes it a few times
// only; narrow ones are summed up in a row of pixels, which costs the same however many they are.
class Boxes {
    constructor() {
        this.wide = head.fills.map(() => []);
        this.faint = head.fills.map(() => []);
        this.strip = document.createElement("canvas");
    }

    begin() {
        const width = Math.ceil(view.width);
        this.any = false;
        this.tints = fills.map(fill => [1, 3, 5].map(at => parseInt(fill.slice(at, at + 2), 16)));
        if (this.strip.width !== width || this.sums === undefined) {
            this.strip.width = width;
            this.strip.height = 1;
            this.context = this.strip.getContext("2d", { willReadFrequently: true });
            this.row = this.context.createImageData(width, 1);
            this.sums = new Float32Array(4 * width); // red, green, blue, share of the pixel
        }
    }

    add(colour, x, width, isFaint) {
        if (width >= narrow) {
            (isFaint ? this.faint : this.wide)[colour].push(x, width > 3 ? width - 0.6 : width);
            return;
        }
        const weight = isFaint ? faintness : 1;
        const first = Math.max(Math.floor(x), 0);
        for (let pixel = first; pixel < x + width && pixel < this.strip.width; pixel++) {
            const share = (Math.min(x + width, pixel + 1) - Math.max(x, pixel)) * weight;
            const [red, green, blue] = this.tints[colour];
            this.sums[4 * pixel] += red * share;
            this.sums[4 * pixel + 1] += green * share;
            this.sums[4 * pixel + 2] += blue * share;
            this.sums[4 * pixel + 3] += share;
        }
        this.any = true;
    }

    fillStrip(context, y, height) {
        const { data } = this.row;
        for (let i = 0; i < data.length; i += 4) {
            const share = this.sums[i + 3];
            data[i] = this.sums[i] / share;
            data[i + 1] = this.sums[i + 1] / share;
            data[i + 2] = this.sums[i + 2] / share;
            data[i + 3] = share > 0 ? 255 * Math.min(Math.max(share, 0.12), 1) : 0;
        }
        this.sums.fill(0);
        this.context.putImageData(this.row, 0, 0);
        context.imageSmoothingEnabled = false;
        context.drawImage(this.strip, 0, y, this.strip.width, height);
    }

    fill(context, y, height) {
        if (this.any) {
            this.fillStrip(context, y, height);
        }
        for (const [lists, alpha] of [[this.faint, faintness], [this.wide, 1]]) {
            context.globalAlpha = alpha;
            lists.forEach((list, colour) => {
                context.fillStyle = fills[colour];
                for (let i = 0; i < list.length; i += 2) {
                    context.fillRect(list[i], y, list[i + 1], height);
                }
                list.length = 0;
            });
        }
        context.globalAlpha = 1;
    }
}

let boxes = null;

function addOps(run, queue) {
    const scale = plotWidth() / (view.to - view.from);
    const { start, end, colour, onPath } = run;
    const dims = view.emphasizePath && run.knowsCauses;
    boxes.begin();
    for (let op = firstEndingAfter(run, queue.begin, queue.end, view.from); op < queue.end && start[op] < view.to; op++) {
        const x = view.gutter + (start[op] - view.from) * scale;
        boxes.add(colour[op], x, (end[op] - start[op]) * scale, dims && !onPath[op]);
    }
}

function drawNames(context, run, queue, y, height) {
    const scale = plotWidth() / (view.to - view.from);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    for (let op = firstEndingAfter(run, queue.begin, queue.end, view.from); op < queue.end && run.start[op] < view.to; op++) {
        if ((run.end[op] - run.start[op]) * scale < 26) {
            continue;
        }
        const left = Math.max(xOf(run.start[op]), view.gutter);
        const right = Math.min(xOf(run.end[op]), view.width);
        const name = opName(run, op);
        const short = name.split("@")[0];
        const text = right - left > 7 * name.length ? name : right - left > 7 * short.length ? short : "";
        const dimmed = view.emphasizePath && run.knowsCauses && !run.onPath[op];
        context.fillStyle = dimmed ? colours.soft : inks[run.colour[op]];
        context.fillText(text, (left + right) / 2, y + height / 2 + 0.5);
    }
}

function drawPath(context, lane) {
    const { op, start, end, step } = lane.run.path;
    const scale = plotWidth() / (view.to - view.from);
    const idle = head.colours.indexOf("idle");
    boxes.begin();
    for (let i = firstAbove(end, view.from, 0, end.length); i < op.length && start[i] < view.to; i++) {
        const x = view.gutter + (start[i] - view.from) * scale;
        boxes.add(step[i] === 0 ? lane.run.colour[op[i]] : idle, x, (end[i] - start[i]) * scale, false);
    }
    boxes.fill(context, lane.y - scroller.scrollTop + 3, lane.height - 5);
}

// The matches of the search, as ticks below their ops.
function drawMatches(context, lane, y) {
    const ops = view.matches?.get(lane.run);
    if (ops === undefined || lane.queue === null) {
        return;
    }
    context.fillStyle = colours.mark;
    let pixel = -1;
    const { run, queue } = lane;
    for (let op = firstEndingAfter(run, queue.begin, queue.end, view.from); op < queue.end && run.start[op] < view.to; op++) {
        const x = xOf(run.start[op]);
        if (ops.has(op) && Math.floor(x) !== pixel) {
            pixel = Math.floor(x);
            context.fillRect(x, y + lane.height - 3, Math.max(xOf(run.end[op]) - x, 1.5), 2.5);
        }
    }
}

function drawLane(context, lane) {
    const y = lane.y - scroller.scrollTop;
    if (lane.queue === null) {
        drawPath(context, lane);
        return;
    }
    const [top, height] = [y + 1, lane.height - 2];
    context.fillStyle = fills[head.colours.indexOf("idle")];
    const left = Math.max(xOf(0), view.gutter);
    context.fillRect(left, top, Math.max(Math.min(xOf(lane.run.length), view.width) - left, 0), height);
    addOps(lane.run, lane.queue);
    boxes.fill(context, top, height);
    if (lane.height > 16) {
        drawNames(context, lane.run, lane.queue, top, height);
    }
    drawMatches(context, lane, y);
}

// The selected op, and a line to the op that it waited for.
function drawSelected(context) {
    const outline = (run, op, dash) => {
        const lane = laneOf(run, op);
        if (lane === null) {
            return null;
        }
        const x = xOf(run.start[op]);
        const width = Math.max(xOf(run.end[op]) - x, 2);
        const y = lane.y - scroller.scrollTop;
        context.setLineDash(dash);
        context.strokeRect(x - 1, y, width + 2, lane.height);
        context.setLineDash([]);
        return { left: x, right: x + width, middle: y + lane.height / 2 };
    };
    if (view.selected === null) {
        return;
    }
    const { run, op } = view.selected;
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    const here = outline(run, op, []);
    if (here === null || run.cause[op] < 0) {
        return;
    }
    context.strokeStyle = colours.mark;
    const there = outline(run, run.cause[op], [4, 3]);
    if (there !== null) {
        context.beginPath();
        context.moveTo(there.right, there.middle);
        context.lineTo(here.left, here.middle);
        context.stroke();
    }
}

function shortened(context, text, width) {
    let most = text.length;
    const cut = () => most < text.length ? text.slice(0, most) + "\u2026" : text;
    while (most > 1 && context.measureText(cut()).width > width) {
        most--;
    }
    return cut();
}

function drawLabels(context, height) {
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, view.gutter, height);
    context.textAlign = "left";
    for (const lane of view.lanes) {
        const y = lane.y - scroller.scrollTop;
        if (y + lane.height > axisHeight && y < height) {
            const large = lane.height > 16;
            context.font = `${large ? 12 : 10}px system-ui, sans-serif`;
            context.fillStyle = large ? colours.ink : colours.soft;
            context.fillText(shortened(context, lane.label, view.gutter - 8), 4, y + lane.height / 2 + 0.5);
        }
    }
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, view.gutter, axisHeight);
}

function drawLanes(height) {
    const context = prepare(canvas, view.width, height);
    context.save();
    context.beginPath();
    context.rect(0, axisHeight, view.width, height - axisHeight);
    context.clip();
    drawAxis(context, height);
    for (const lane of view.lanes) {
        const y = lane.y - scroller.scrollTop;
        if (y + lane.height > 0 && y < height) {
            drawLane(context, lane);
        }
    }
    drawSelected(context);
    drawLabels(context, height);
    context.restore();
    drawAxis(context, axisHeight);
}

// ---- memory ----

const memoryHeight = 144;

// Steps of a pixel are one line from their least to their most.
function traceMemory(context, place, yOf) {
    let i = Math.max(firstAbove(place.time, view.from, 0, place.time.length) - 1, 0);
    let x = Math.max(xOf(Math.max(place.time[i], view.from)), view.gutter);
    context.beginPath();
    context.moveTo(x, yOf(place.bytes[i]));
    while (++i < place.time.length && place.time[i] < view.to) {
        const pixel = Math.floor(xOf(place.time[i]));
        let [least, most] = [place.bytes[i - 1], place.bytes[i - 1]];
        x = xOf(place.time[i]);
        context.lineTo(x, yOf(place.bytes[i - 1]));
        for (; i < place.time.length && Math.floor(xOf(place.time[i])) === pixel; i++) {
            least = Math.min(least, place.bytes[i]);
            most = Math.max(most, place.bytes[i]);
        }
        context.lineTo(x, yOf(most));
        context.lineTo(x, yOf(least));
        context.lineTo(x, yOf(place.bytes[--i]));
    }
    context.lineTo(Math.min(xOf(Math.min(view.to, view.length)), view.width), yOf(place.bytes[i - 1]));
    context.stroke();
}

function drawMemory() {
    const context = prepare(curve, view.width, memoryHeight);
    const places = view.runs.map(run => run.places[Math.min(view.place, run.places.length - 1)]);
    const scaled = places.every(place => place.scaled);
    const most = Math.max(...places.map(place => Math.max(place.bytes[place.peak], scaled ? place.limit : 0)), 1) * 1.06;
    const yOf = bytes => memoryHeight - 4 - bytes / most * (memoryHeight - 10);
    context.font = "10px system-ui, sans-serif";
    context.save();
    context.beginPath();
    context.rect(view.gutter, 0, plotWidth(), memoryHeight);
    context.clip();
    places.forEach((place, number) => {
        context.lineWidth = 1.5;
        context.strokeStyle = number === 0 ? colours.mark : colours.ink;
        context.setLineDash(number === 0 ? [] : [5, 3]);
        traceMemory(context, place, yOf);
        if (scaled && place.limit > 0) {
            context.strokeStyle = "#c0392b";
            context.setLineDash([2, 3]);
            context.beginPath();
            context.moveTo(view.gutter, yOf(place.limit));
            context.lineTo(view.width, yOf(place.limit));
            context.stroke();
        }
    });
    context.restore();
    context.textAlign = "right";
    context.fillStyle = colours.soft;
    const step = 10 ** Math.floor(Math.log10(most)) * (most / 10 ** Math.floor(Math.log10(most)) < 3 ? 0.5 : 2);
    for (let bytes = 0; scaled && bytes <= most; bytes += step) {
        context.fillText(bytesText(bytes), view.gutter - 6, Math.min(Math.max(yOf(bytes), 6), memoryHeight - 6));
    }
}

// ---- all of it ----

// The width of the canvas, and what of it is for labels; those are shorter where there is little.
function measure() {
    view.width = Math.max(canvas.clientWidth, 120);
    const gutter = view.width < 600 ? (view.runs.length > 1 ? 84 : 72) : view.runs.length > 1 ? 150 : 110;
    if (gutter !== view.gutter) {
        view.gutter = gutter;
        layOutLanes();
    }
}

function draw() {
    if (view.runs.length === 0) {
        return;
    }
    measure();
    const visible = Math.min(scroller.clientHeight || view.height, view.height);
    drawLanes(visible);
    if (!document.getElementById("memory").hidden) {
        drawMemory();
    }
}

function scrollToLane(lane) {
    if (lane !== null) {
        const top = scroller.scrollTop + axisHeight;
        const bottom = scroller.scrollTop + scroller.clientHeight;
        if (lane.y < top) {
            scroller.scrollTop = lane.y - axisHeight;
        } else if (lane.y + lane.height > bottom) {
            scroller.scrollTop = lane.y + lane.height - scroller.clientHeight + 4;
        }
    }
}
