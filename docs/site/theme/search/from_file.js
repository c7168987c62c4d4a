/* Search in pages that are opened as files: browsers neither fetch the index nor start a worker there. The index comes
   as a script (search_index.js, made by make.sh), and the worker runs in a frame. */
if (location.protocol === "file:") {
    const index = new URL("search_index.js", document.currentScript.src);
    document.write(`<script src="${index}"></` + "script>");

    window.Worker = class extends EventTarget {
        constructor(url) {
            super();
            const frame = document.createElement("iframe");
            frame.hidden = true;
            document.body.appendChild(frame);
            this.inside = frame.contentWindow;
            this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
            const script = frame.contentDocument.createElement("script");
            this.ready = new Promise((resolve) => { script.onload = resolve; });
            script.src = url;
            frame.contentDocument.body.appendChild(script);
        }

        postMessage(data) {
            this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
        }
    };
}
