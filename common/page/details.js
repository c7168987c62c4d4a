// ---- details.js: what the page says about an op -----------------------------------------------

// Exact milliseconds: picoseconds are their ninth decimal.
function msText(ps) {
    const whole = Math.floor(Math.abs(ps) / 1e9);
    const rest = String(Math.abs(ps) - whole * 1e9).padStart(9, "0").replace(/0+$/, "");
    return `${ps < 0 ? "\u2212" : ""}${whole}${rest === "" ? "" : `.${rest}`} ms`;
}

function roundText(ps) {
    const [size, name] = units.find(([size]) => Math.abs(ps) >= size) ?? units[units.length - 1];
    return `${Number((ps / size).toPrecision(4))} ${name}`;
}

function bytesText(bytes) {
    const sizes = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
    const [size, name] = sizes.find(([size]) => bytes >= size) ?? [1, "B"];
    return `${(bytes / size).toFixed(size === 1 ? 0 : 1)} ${name}`;
}

function layersText(run, op) {
    const stage = run.stages[run.stage[op]];
    if (run.layer[op] !== 0) {
        return `${run.layer[op]}`;
    }
    const [begin, end, withHead] = stage ?? [0, 0, 0];
    const range = end > begin + 1 ? `${begin + 1} to ${end}` : end > begin ? `${end}` : "none";
    return withHead ? `${range}, and the head` : range;
}

// In words, with the op's name last: "a tensor of 2F0 on GPU 1, compute".
function causeText(run, op) {
    if (!run.knowsCauses) {
        return "unknown: this timeline came without its program";
    }
    const cause = run.cause[op];
    const words = head.reasons[run.reason[op]];
    return cause < 0 ? words : `${words} ${opName(run, cause)} (${queueName(run, cause)}), which ended at ${msText(run.end[cause])}`;
}

// The same op of the run beside it, where both run the same program.
function twin(run, op) {
    const other = view.runs.find(each => each !== run);
    const same = other !== undefined && other.ops === run.ops && opName(other, op) === opName(run, op) &&
        queueName(other, op) === queueName(run, op);
    return same ? other : null;
}

// [key, label, text, picoseconds or null] of all that is known.
function factsOf(run, op) {
    const kind = head.kinds[run.kind[op]];
    const duration = run.end[op] - run.start[op];
    const facts = [["kind", "kind", `${kind.text}: ${kind.meaning}`], ["where", "runs on", queueName(run, op)]];
    if (kind.host) {
        facts.push(["layer", "layer", run.microbatch[op] === 0 ? "all" : `${run.microbatch[op]}`]);
    } else {
        facts.push(["stage", "stage", `${run.stage[op]}`], ["microbatch", "microbatch", `${run.microbatch[op]}`]);
        facts.push(["layers", "layers", layersText(run, op)]);
    }
    facts.push(["iteration", "iteration", `${run.iteration[op]}`]);
    facts.push(["start", "start", msText(run.start[op]), run.start[op]]);
    facts.push(["duration", "duration", msText(duration), duration]);
    facts.push(["end", "end", msText(run.end[op]), run.end[op]]);
    if (run.held[op] > 0) {
        facts.push(["held", "of it held", msText(run.held[op]), run.held[op]]);
    }
    if (run.bytes[op] > 0) {
        const rate = duration > 0 ? `, ${(run.bytes[op] / duration * 1e3).toPrecision(3)} GB/s` : "";
        facts.push(["bytes", "bytes", bytesText(run.bytes[op]) + rate]);
    }
    const cause = run.cause[op];
    facts.push(["cause", "waited for", causeText(run, op)]);
    if (run.knowsCauses && cause >= 0 && run.start[op] > run.end[cause]) {
        facts.push(["after", "began", `${msText(run.start[op] - run.end[cause])} after that`]);
    }
    if (run.knowsCauses) {
        facts.push(["path", "critical path", run.onPath[op] ? "on it" : "not on it"]);
    }
    const other = twin(run, op);
    if (other !== null) {
        const there = other.end[op] - other.start[op];
        facts.push(["twin", other.name, `start ${msText(other.start[op])}, duration ${msText(there)}`]);
        if (there > 0) {
            facts.push(["ratio", "duration", `${((duration / there - 1) * 100).toFixed(1)} % against ${other.name}`]);
        }
    }
    return facts;
}

const panel = document.getElementById("op");

function describeSelected() {
    if (view.selected === null) {
        const note = document.createElement("p");
        note.textContent = "Click an op, or search for one.";
        panel.replaceChildren(note);
        return;
    }
    const { run, op } = view.selected;
    const title = document.createElement("h3");
    const list = document.createElement("dl");
    title.textContent = `${opName(run, op)}, op ${op}${view.runs.length > 1 ? `, ${run.name}` : ""}`;
    for (const [key, label, text, ps] of factsOf(run, op)) {
        const term = document.createElement("dt");
        const value = document.createElement("dd");
        term.textContent = label;
        value.textContent = text;
        value.dataset.key = key;
        if (ps !== undefined) {
            value.dataset.ps = ps;
        }
        list.append(term, value);
    }
    panel.replaceChildren(title, list);
    panel.dataset.op = op;
    panel.dataset.run = run.number;
    if (run.cause[op] >= 0) {
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.cause = run.cause[op];
        button.textContent = `Go to ${opName(run, run.cause[op])}, which it waited for`;
        button.addEventListener("click", followCause);
        panel.append(button);
    }
}

function followCause() {
    if (view.selected !== null && view.selected.run.cause[view.selected.op] >= 0) {
        select(view.selected.run, view.selected.run.cause[view.selected.op], "see");
    }
}

// ---- the hint beside the pointer ----

const hint = document.getElementById("hint");

function showHint(run, op, x, y) {
    const name = document.createElement("b");
    name.textContent = opName(run, op);
    const kind = head.kinds[run.kind[op]];
    const lines = [
        `${kind.meaning}; op ${op} on ${queueName(run, op)}${view.runs.length > 1 ? `, ${run.name}` : ""}`,
        kind.host ? "" : `stage ${run.stage[op]}, microbatch ${run.microbatch[op]}, iteration ${run.iteration[op]}`,
        `start ${msText(run.start[op])}`,
        `duration ${msText(run.end[op] - run.start[op])}`,
        `waited for ${causeText(run, op)}`,
    ];
    hint.replaceChildren(name);
    for (const line of lines.filter(text => text !== "")) {
        const part = document.createElement("div");
        part.textContent = line;
        hint.append(part);
    }
    hint.dataset.op = op;
    hint.dataset.cause = run.cause[op];
    hint.hidden = false;
    const { width, height } = hint.getBoundingClientRect();
    hint.style.left = `${Math.max(Math.min(x + 14, innerWidth - width - 6), 4)}px`;
    hint.style.top = `${y + 18 + height > innerHeight ? Math.max(y - height - 10, 4) : y + 18}px`;
}

function hideHint() {
    hint.hidden = true;
}
