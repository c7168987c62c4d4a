// ---- main.js: the controls, and the beginning -------------------------------------------------

const byId = id => document.getElementById(id);
const runChoice = byId("run");
const besideChoice = byId("beside");
const placeChoice = byId("place");

function addOption(list, value, text) {
    const option = document.createElement("option");
    option.value = value;
    option.textContent = text;
    list.append(option);
}

function setAllLanes(on) {
    view.allLanes = on;
    byId("all-lanes").checked = on;
    layOutLanes();
    fitHeight();
    redraw();
}

// The canvas is as high as what can be seen of the lanes; the element around it is as high as all.
function fitHeight() {
    byId("height").style.height = `${view.height}px`;
}

// Ops narrower than two pixels are mixed, and then no colour of the list is theirs.
function writeLegend() {
    const used = new Set(view.runs.flatMap(run => [...new Set(run.colour)]));
    byId("legend").replaceChildren(...head.colours.flatMap((name, number) => {
        if (!used.has(number) && name !== "idle") {
            return [];
        }
        const entry = document.createElement("span");
        const patch = document.createElement("i");
        patch.style.background = fills[number];
        entry.append(patch, name);
        return [entry];
    }), "between these: several ops in a pixel");
}

// ---- memory ----

function fullestPlace(run) {
    const gpus = run.places.filter(place => !place.host);
    const most = Math.max(...gpus.map(place => place.most));
    return Math.max(gpus.findIndex(place => place.most === most), 0);
}

function writePlaces() {
    const run = view.runs[0];
    const known = view.runs.some(each => each.knowsMemory);
    byId("memory").hidden = !known;
    placeChoice.replaceChildren();
    run.places.forEach((place, number) => addOption(placeChoice, number, place.name));
    view.place = fullestPlace(run);
    placeChoice.value = view.place;
    describePlace();
}

function describePlace() {
    byId("memory-text").textContent = view.runs.filter(run => run.knowsMemory).map(run => {
        const place = run.places[Math.min(view.place, run.places.length - 1)];
        const limit = place.limit > 0 ? ` of ${bytesText(place.limit)}` : "";
        const name = view.runs.length > 1 ? `${run.name}: ` : "";
        const when = place.scaled ? `at ${roundText(place.time[place.peak])}` : `${run.peaksAre}; the curve, of the program's buffers, shows when`;
        return `${name}at most ${bytesText(place.most)}${limit}, ${when}`;
    }).join("; ");
    curve.setAttribute("aria-label", `Memory of ${placeChoice.selectedOptions[0]?.textContent}: ${byId("memory-text").textContent}`);
}

// ---- runs ----

// Tables of a run are shown with it.
function showTables() {
    const numbers = view.runs.map(run => String(run.number));
    for (const table of document.querySelectorAll("[data-run].table")) {
        table.hidden = !numbers.includes(table.dataset.run);
    }
}

async function chooseRuns() {
    const numbers = [Number(runChoice.value)];
    if (besideChoice.value !== "" && besideChoice.value !== runChoice.value) {
        numbers.push(Number(besideChoice.value));
    }
    view.runs = await Promise.all(numbers.map(loadRun));
    view.length = Math.max(...view.runs.map(run => run.length), 1);
    view.selected = null;
    layOutLanes();
    fitHeight();
    writeLegend();
    writePlaces();
    showTables();
    byId("path").disabled = !view.runs.some(run => run.knowsCauses);
    describeSelected();
    search();
    measure();
    showWhole();
}

// #op=17 and #run=1&op=17 open the page at an op.
function openAtHash() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const op = Number(wanted.get("op") ?? -1);
    const run = view.runs.find(each => each.number === Number(wanted.get("run") ?? view.runs[0].number));
    if (run !== undefined && Number.isInteger(op) && op >= 0 && op < run.ops) {
        select(run, op, "close");
    }
}

function setUpControls() {
    head.runs.forEach((run, number) => {
        addOption(runChoice, number, run.name);
        addOption(besideChoice, number, run.name);
    });
    runChoice.value = head.first;
    besideChoice.prepend(new Option("nothing", ""));
    besideChoice.value = head.together && head.runs.length > 1 ? "1" : "";
    byId("run-label").hidden = byId("beside-label").hidden = head.runs.length < 2;
    runChoice.addEventListener("change", chooseRuns);
    besideChoice.addEventListener("change", chooseRuns);
    placeChoice.addEventListener("change", () => {
        view.place = Number(placeChoice.value);
        describePlace();
        redraw();
    });
    byId("all-lanes").addEventListener("change", event => setAllLanes(event.target.checked));
    byId("path").addEventListener("change", event => {
        view.emphasizePath = event.target.checked;
        redraw();
    });
    byId("zoom-in").addEventListener("click", () => zoomAtSelected(0.6));
    byId("zoom-out").addEventListener("click", () => zoomAtSelected(1 / 0.6));
    byId("whole").addEventListener("click", showWhole);
    byId("tools").addEventListener("submit", event => event.preventDefault());
    addEventListener("hashchange", openAtHash);
    addEventListener("resize", redraw);
    dark.addEventListener("change", () => {
        readColours();
        writeLegend();
        redraw();
    });
}

async function begin() {
    boxes = new Boxes();
    readColours();
    setUpControls();
    const hashRun = new URLSearchParams(location.hash.slice(1)).get("run");
    if (hashRun !== null && hashRun in head.runs && !head.together) {
        runChoice.value = hashRun;
    }
    await chooseRuns();
    draw();
    performance.mark("first picture");
    document.documentElement.dataset.ready = "yes";
    openAtHash();
}

begin().catch(error => {
    byId("problem").hidden = false;
    byId("problem").textContent = `The timeline cannot be shown: ${error.message}`;
});
