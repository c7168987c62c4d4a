#!/usr/bin/env bash
# The report in headless Chromium, on a phone and on a desktop: it is drawn, no part makes the page
# itself scroll sideways, every text can be read, the summary comes first, methods are folded, it has a
# dark form, and it prints. Release only: see report.sh.
set -euo pipefail
source=$1
build=$2
for tool in awk sqlite3 cmark-gfm gnuplot; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
browser=
for name in chromium chromium-browser google-chrome-stable google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
[ -n "$browser" ] || { echo "skipped: no Chromium here"; exit 77; }
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"

# browse URL OPTION...: no network is needed, and none is to be used.
browse()
{
    local url=$1
    shift
    HOME=$work timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars \
        --host-resolver-rules='MAP * ~NOTFOUND' --user-data-dir="$work/profile" "$@" "$url" 2>"$work/browser.log"
}
browse about:blank --dump-dom >/dev/null || { echo "skipped: $browser does not start: $(tail -n 3 "$work/browser.log")"; exit 77; }

mkdir -p "$work/out/logs"
for name in 02-recompute-or-reload 05-intensity; do
    bash "$source/paper-figures/$name/make.sh" "$build" "$work/out" >"$work/log" 2>&1 || fail "$name: $(cat "$work/log")"
    echo "0 0" >"$work/out/logs/$name.status"
done
bash "$source/paper-figures/report.sh" --assemble "$build" "$work/out" >"$work/log" 2>&1 || true
page=$work/out/index.html
[ -s "$page" ] || { cat "$work/log"; exit 1; }

# The same page, all tables open, with a script that says how wide it is, how large the smallest text of the page
# and of each picture is, where what is to be read first stands, and how much is unfolded; in a frame, since a window
# of Chromium is never narrower than 500 pixels.
cat >"$work/measure.js" <<'JS'
<script>
const scale = t => { const m = t.getScreenCTM(); return Math.hypot(m.c, m.d); };
const height = t => parseFloat(getComputedStyle(t).fontSize) * (t.ownerSVGElement ? scale(t) : 1);
const shown = t => t.textContent.trim() !== "" && t.checkVisibility() && t.getBoundingClientRect().width > 0;
const least = list => Math.min(99, ...list.filter(shown).map(height)).toFixed(1);
const bottom = q => Math.round(document.querySelector(q).getBoundingClientRect().bottom);
const open = [...document.querySelectorAll("details")].filter(d => d.open).length;
const first = [bottom(".sentences"), document.querySelectorAll(".sentences li").length];
document.querySelectorAll("details").forEach(d => d.open = true);
const pictures = [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().width > 0);
parent.postMessage(["sizes", innerWidth, document.documentElement.scrollWidth,
    least([...document.querySelectorAll("p, li, td, th, figcaption, a, summary")]), ...first, open,
    getComputedStyle(document.body).backgroundColor.replace(/ /g, ""),
    ...pictures.map(s => least([...s.querySelectorAll("text")]))].join(" "), "*");
</script></body>
JS
sed -e "/<\/body>/{r $work/measure.js
s#</body>.*##}" "$page" >"$work/measured.html"
echo '</html>' >>"$work/measured.html"
for size in 390,844 1280,800 390,844,dark; do
    IFS=, read -r width height dark <<<"$size"
    colours=()
    [ -z "$dark" ] || colours=(--blink-settings=preferredColorScheme=0)
    browse "file://$page" "${colours[@]}" --window-size="$width,$height" --screenshot="$work/$size.png" || fail "$size: $(cat "$work/browser.log")"
    # 8 bytes of signature, then the header with width and height.
    read -r wide high < <(od -An -j16 -N8 -tu1 "$work/$size.png" | awk '{ print $3 * 256 + $4, $7 * 256 + $8 }')
    [ "$wide,$high" = "$width,$height" ] || fail "the picture of $size is $wide,$high"
    [ "$(wc -c <"$work/$size.png")" -gt 20000 ] || fail "$size: an empty picture"
    echo "<title>nothing</title><iframe src='measured.html' width='$width' height='$height'></iframe>
<script>onmessage = e => document.title = e.data;</script>" >"$work/frame.html"
    browse "file://$work/frame.html" "${colours[@]}" --window-size=1400,900 --virtual-time-budget=20000 --dump-dom |
        grep -o '<title>sizes[^<]*' >"$work/sizes" || true
    awk -v width="$width" -v height="$height" -v dark="$dark" '{
        if ($2 != width) print "a frame of " $2
        if ($3 > $2) print "is " $3 " wide in a window of " $2
        if ($4 < 11) print "text of " $4 " pixels"
        if ($5 > height || $6 != 3) print $6 " sentences that end at " $5
        if ($7 != 0) print $7 " parts are unfolded"
        if (($8 == "rgb(255,255,255)") == (dark != "")) print "background " $8
        for (i = 9; i <= NF; i++) if ($i < (width < 500 ? 10.95 : 10)) print "a picture has text of " $i " pixels"
        if (NF != 10) print NF - 8 " pictures"
        good = 1
    }
    END { if (!good) print "no sizes" }' "$work/sizes" >"$work/wrong"
    [ ! -s "$work/wrong" ] || fail "$size: $(cat "$work/wrong")"
done
browse "file://$page" --no-pdf-header-footer --print-to-pdf="$work/page.pdf" || fail "$(cat "$work/browser.log")"
[ "$(head -c 5 "$work/page.pdf")" = %PDF- ] || fail "it does not print"
if command -v pdftotext >/dev/null; then
    pdftotext "$work/page.pdf" "$work/page.txt"
    grep -q 'What did not reproduce' "$work/page.txt" || fail "the print has no text"
fi
end
