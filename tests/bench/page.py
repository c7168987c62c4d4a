"""page.py BROWSER PAGE REPEATS: see page.sh."""
import os
import statistics
import sys

from browser import Browser

# Moves the timeline in each frame, to and fro, by the events of a wheel; pictures a second of two seconds.
MOVE = """(async () => {
    const canvas = document.getElementById("lanes");
    const frame = () => new Promise(requestAnimationFrame);
    document.getElementById("whole").click();
    for (const name of %s) { document.getElementById(name).click(); }
    await frame();
    await frame();
    const begin = performance.now();
    let frames = 0;
    while (performance.now() - begin < 2000) {
        canvas.dispatchEvent(new WheelEvent("wheel", { deltaX: frames %% 60 < 30 ? 9 : -9, cancelable: true }));
        await frame();
        frames++;
    }
    return 1000 * frames / (performance.now() - begin);
})()"""


def main():
    program, path, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    values = {}
    for _ in range(repeats):
        with Browser(program, 1280, 900) as page:
            page.open("file://" + path)
            results = {
                ("first_picture", "ms"): page.value("performance.getEntriesByName('first picture')[0].startTime"),
                ("pan_whole", "pictures/s"): page.value(MOVE % '["zoom-in"]'),
                ("pan_whole_all_lanes", "pictures/s"): page.value(MOVE % '["zoom-in", "all-lanes"]'),
                ("pan_close_all_lanes", "pictures/s"): page.value(MOVE % '["zoom-in", "zoom-in", "zoom-in", "zoom-in", "zoom-in", "zoom-in"]'),
            }
            for name, value in results.items():
                values.setdefault(name, []).append(value)
            ops = page.value("JSON.parse(document.getElementById('data').textContent).runs[0].ops")
    print("quantity,unit,ops,page_bytes,median,least,most")
    for (name, unit), each in values.items():
        print(f"{name},{unit},{ops},{os.path.getsize(path)},{statistics.median(each):.1f},{min(each):.1f},{max(each):.1f}")


main()
