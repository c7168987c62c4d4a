// ---- search.js: finding ops -------------------------------------------------------------------
// A query is an op's name (2F0, 2F0@1; 2F0@0 is 2F0) or number (17, #17), or words that must all hold: gpu:1,
// kind:B, stage:2, mb:3, it:0, layer:5, queue:compute, path. A word without ":" is a name.

const field = document.getElementById("search");
const found = document.getElementById("found");

const filters = {
    gpu: (run, op, value) => String(run.queues[run.queueOf[op]].gpu) === value,
    kind: (run, op, value) => head.kinds[run.kind[op]].text.toLowerCase() === value.toLowerCase(),
    stage: (run, op, value) => String(run.stage[op]) === value,
    mb: (run, op, value) => String(run.microbatch[op]) === value,
    it: (run, op, value) => String(run.iteration[op]) === value,
    layer: (run, op, value) => String(run.layer[op]) === value,
    queue: (run, op, value) => head.queueKinds[run.queues[run.queueOf[op]].kind] === value.toLowerCase(),
};

// A test of (run, op) for each word; a word that nothing can match throws, with the reason.
function parseQuery(query) {
    return query.trim().split(/\s+/).map(word => {
        const [key, value] = word.split(/:(.*)/s);
        if (/^#?\d+$/.test(word)) {
            const number = Number(word.replace("#", ""));
            return (run, op) => op === number;
        }
        if (word === "path") {
            return (run, op) => run.onPath[op] === 1;
        }
        if (value === undefined) {
            const name = word.toLowerCase().replace(/@0$/, "");
            return (run, op) => opName(run, op).toLowerCase() === name;
        }
        if (!(key in filters)) {
            throw new Error(`no such word as ${key}:; there are ${Object.keys(filters).join(": ")}:`);
        }
        return (run, op) => filters[key](run, op, value);
    });
}

// All matches in the order of their starts, and of runs where they start together.
let matches = [];
let current = -1;

function sayFound() {
    const place = current >= 0 ? `${current + 1} of ` : "";
    found.textContent = field.value.trim() === "" ? "" : matches.length === 0 ? "no op" : `${place}${matches.length} ops`;
}

function search() {
    matches = [];
    current = -1;
    view.matches = null;
    try {
        if (field.value.trim() !== "") {
            const tests = parseQuery(field.value);
            view.matches = new Map();
            for (const run of view.runs) {
                const ops = [];
                for (let op = 0; op < run.ops; op++) {
                    if (tests.every(test => test(run, op))) {
                        ops.push({ run, op });
                    }
                }
                view.matches.set(run, new Set(ops.map(match => match.op)));
                matches.push(...ops);
            }
            matches.sort((a, b) => a.run.start[a.op] - b.run.start[b.op] || a.op - b.op);
        }
        sayFound();
    } catch (error) {
        found.textContent = error.message;
    }
    redraw();
}

function goToMatch(step) {
    if (matches.length > 0) {
        current = current < 0 ? (step > 0 ? 0 : matches.length - 1) : (current + step + matches.length) % matches.length;
        select(matches[current].run, matches[current].op, "close");
        sayFound();
    }
}

function endSearch() {
    field.value = "";
    search();
}

let typing = 0;

field.addEventListener("input", () => {
    current = -1; // what was found before is not what is looked for
    clearTimeout(typing);
    typing = setTimeout(search, 120);
});
field.addEventListener("keydown", event => {
    if (event.key === "Enter") {
        event.preventDefault();
        clearTimeout(typing);
        if (current < 0) {
            search();
        }
        goToMatch(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
        endSearch();
        document.getElementById("chart").focus();
    }
});
document.getElementById("next").addEventListener("click", () => {
    if (current < 0) {
        search();
    }
    goToMatch(1);
});
