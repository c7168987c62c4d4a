# Sourced by report.sh: page prints the page. Uses numbered, last, places, headings, parts, root,
# out, logs and work; sets failed, the names of the entries that have failed.

escape()
{
    sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'
}

# status_of NAME: 0, the exit status of its make.sh, or nothing if that has not run.
status_of()
{
    [ ! -f "$logs/$1.status" ] || cut -d' ' -f1 "$logs/$1.status"
}

# title_of FOLDER: its README's first heading.
title_of()
{
    local title=
    [ ! -f "$1/README.md" ] || title=$(sed -n '/^# /{s/^# *//p;q;}' "$1/README.md")
    printf '%s\n' "${title:-$(basename "$1")}" | escape
}

# html_of FILE: Markdown as HTML without its first heading, headings two levels deeper; links to
# files and pictures of the tree lead nowhere from a page that stands alone, only their text stays.
html_of()
{
    sed '1{/^# /d;}' "$1" | cmark-gfm -e table --to html | sed -E \
        -e 's#<!-- raw HTML omitted -->##g' -e 's#<img src="[^"]*" alt="([^"]*)"[^>]*/>#\1#g' \
        -e 's#<a href="(https?:[^"]*)">#<A href="\1">#g' \
        -e 's#<a [^>]*>([^<]*)</a>#\1#g' -e 's#<a [^>]*>##g' \
        -e 's#<A #<a #g' \
        -e 's#<(/?)h4>#<\1h6>#g' -e 's#<(/?)h3>#<\1h5>#g' -e 's#<(/?)h2>#<\1h4>#g' -e 's#<(/?)h1>#<\1h4>#g' \
        -e 's#<td( align="[a-z]*")?>([-+−]?[0-9][0-9.]*( ?(%|points|k|ms|GB))?)</td>#<td class="n">\2</td>#g' \
        -e 's#<td>([^< ]{1,28})</td>#<td class="nb">\1</td>#g' \
        -e 's#<table>#<div class="scroll"><table>#g' -e 's#</table>#</table></div>#g'
}

# files_of NAME EXT: NAME.EXT and NAME-*.EXT in OUTDIR, without those of an entry with a longer name.
files_of()
{
    local file other mine
    for file in "$out/$1.$2" "$out/$1"-*."$2"; do
        [ -s "$file" ] || continue
        mine=yes
        for other in "${names[@]}"; do
            case $other in
            "$1"-*) case $(basename "$file" ".$2") in "$other" | "$other"-*) mine=no ;; esac ;;
            esac
        done
        [ $mine = no ] || echo "$file"
    done
}

# caption_of NAME FILE: what to say of a picture or table beside the entry's title.
caption_of()
{
    local base
    base=$(basename "$2")
    base=${base%.*}
    base=${base#"$1"}
    echo "${base#-}" | tr '-' ' '
}

# entry FOLDER LEVEL: the section, with a heading of that level.
entry()
{
    local folder=$1 level=$2 name status file base caption title rows limit=400
    name=$(basename "$folder")
    title=$(title_of "$folder")
    status=$(status_of "$name")
    echo "<section class=\"entry\" id=\"$name\"><h$level>$title</h$level>"
    if [ "$status" != 0 ]; then
        if [ -z "$status" ]; then
            echo "<p class=\"failed\">Not made: its make.sh has not run.</p>"
        else
            echo "<p class=\"failed\">Failed: its make.sh ended with exit status $status. It said:</p><pre>"
            tail -n 20 "$logs/$name.log" | tr -d '\000-\010\013-\037' | escape
            echo "</pre>"
        fi
    fi
    [ ! -f "$folder/README.md" ] || html_of "$folder/README.md"
    if [ "$status" = 0 ]; then
        while read -r file; do
            html_of "$file"
        done < <(files_of "$name" md)
        while read -r file; do
            caption=$(caption_of "$name" "$file")
            base=$(basename "$file" .svg)
            echo "<figure><input type=\"checkbox\" id=\"$base-larger\" /><label for=\"$base-larger\">larger</label>"
            echo "<div class=\"picture\">"
            awk -v name="$base" -v text="$title${caption:+: $caption}" \
                -f "$parts/text.awk" -f "$parts/svg.awk" "$file" "$file"
            echo "</div><figcaption>$title${caption:+: $caption}</figcaption></figure>"
        done < <(files_of "$name" svg)
        while read -r file; do
            rows=$(($(wc -l < "$file") - 1))
            echo "<details><summary>$(basename "$file"): $rows rows</summary>"
            [ "$rows" -le $limit ] || echo "<p>The first $limit rows; the file has all.</p>"
            echo "<div class=\"scroll tall\">"
            awk -v limit=$limit -f "$parts/text.awk" -f "$parts/table.awk" "$file"
            echo "</div></details>"
        done < <(files_of "$name" csv)
    fi
    echo "<p class=\"back\"><a href=\"#top\">back to the top</a></p></section>"
}

# A row per entry with something published to compare with.
comparison_row()
{
    local folder=$1 name kind status cells
    name=$(basename "$folder")
    status=$(status_of "$name")
    kind=
    [ ! -f "$folder/README.md" ] || kind=$(awk -f "$parts/kind.awk" "$folder/README.md")
    echo "<tr><td class=\"nb\"><a href=\"#$name\">$(title_of "$folder" | sed 's/:.*//')</a></td><td>${kind:-not said}</td>"
    if [ "$status" != 0 ]; then
        echo "<td colspan=\"4\" class=\"failed\">${status:+failed}${status:-not made}</td></tr>" |
            sed 's/failed[0-9]*</failed</'
        return
    fi
    cells='0||||'
    [ ! -s "$out/$name.csv" ] || cells=$(awk -f "$parts/text.awk" -f "$parts/compare.awk" "$out/$name.csv")
    awk -F'|' '{
        printf "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>", \
            $1 ? $1 : "none", $2, $3
        printf "<td>%s%s%s</td></tr>\n", $4 ? $4 " set a constant" : "", $4 && $5 ? "; " : "", \
            $5 ? $5 " out of memory on one side only" : ""
    }' <<< "$cells"
}

comparison()
{
    local folder
    echo '<section id="comparison"><h2>Figures of the paper: differences</h2>'
    echo '<p>Signed differences, ours against published: in percent of the published value, or without a unit in
that of the table (ms, percentage points). Cells that a constant of the model was set on are no predictions: they
are counted and left out. Cells that are out of memory on one side only have no difference and are counted, too.</p>'
    echo '<div class="scroll"><table><thead><tr><th>figure</th><th>kind</th><th class="n">cells</th>'
    echo '<th class="n">mean</th><th class="n">worst</th><th>besides</th></tr></thead><tbody>'
    while read -r folder; do
        comparison_row "$folder"
    done < <(entries "${places[0]}")
    echo '</tbody></table></div></section>'
}

not_reproduced()
{
    local folder name
    echo '<section id="not-reproduced"><h2>What did not reproduce, and why</h2>'
    while read -r folder; do
        name=$(basename "$folder")
        echo "<h4><a href=\"#$name\">$(title_of "$folder")</a></h4>"
        : > "$work/missing.md"
        [ ! -f "$folder/README.md" ] || awk -f "$parts/missing.awk" "$folder/README.md" > "$work/missing.md"
        if [ "$(status_of "$name")" != 0 ]; then
            echo '<p class="failed">It could not be made this time; see there.</p>'
        fi
        if [ -s "$work/missing.md" ]; then
            html_of "$work/missing.md"
        else
            echo '<p>Its README names nothing.</p>'
        fi
    done < <(entries "${places[0]}")
    echo '</section>'
}

# fact NAME TEXT
fact()
{
    printf '<tr><th>%s</th><td>%s</td></tr>\n' "$1" "$(printf '%s' "$2" | escape)"
}

commit()
{
    local id changed day
    if ! id=$(git -C "$root" rev-parse HEAD 2> /dev/null); then
        echo "not known: $root is no git checkout"
        return
    fi
    changed=$(git -C "$root" status --porcelain 2> /dev/null | wc -l)
    day=$(git -C "$root" log -1 --format=%cs)
    [ "$changed" -eq 0 ] || day+=", and $changed files changed or new since"
    echo "$id of $day"
}

compiler()
{
    local path type
    path=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$bin/CMakeCache.txt" 2> /dev/null || true)
    type=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$bin/CMakeCache.txt" 2> /dev/null || true)
    if [ -z "$path" ]; then
        echo "not known: no CMakeCache.txt in $bin"
        return
    fi
    echo "$("$path" --version | sed -n 1p), build type ${type:-none}"
}

runs()
{
    local query
    if [ ! -s "$out/paper.db" ]; then
        echo "<p>No entry has put a run into the store.</p>"
        return
    fi
    query="SELECT coalesce(e.name, '(runs of no experiment)') AS experiment, count(DISTINCT r.id) AS runs,
        count(DISTINCT CASE WHEN p.failure IS NOT NULL THEN p.id END) AS failed_points
        FROM (SELECT id, point_id FROM runs UNION ALL
              SELECT NULL, id FROM points WHERE failure IS NOT NULL) r
        LEFT JOIN points p ON p.id = r.point_id LEFT JOIN experiments e ON e.id = p.experiment_id
        GROUP BY 1 ORDER BY 1"
    echo "<p>Runs in this build's store, which began empty:</p><div class=\"scroll\">"
    sqlite3 -batch -header -csv "$out/paper.db" "$query" | awk -v limit=1000 -f "$parts/text.awk" -f "$parts/table.awk"
    echo "</div>"
}

checksums()
{
    echo "<details><summary>SHA-256 of the data that all this is computed from</summary><pre class=\"sums\">"
    (cd "$root" && for folder in paper-figures traces experiments; do
        [ ! -d $folder ] || find $folder -type f \( -name '*.csv' -o -name '*.yaml' \) -print0
    done | sort -z | xargs -0r sha256sum) | escape
    echo "</pre></details>"
}

provenance()
{
    local seconds
    seconds=$(cat "$logs"/*.status 2> /dev/null | awk '{ sum += $2 } END { print sum + 0 }')
    echo '<section id="provenance"><h2>Provenance</h2><div class="scroll"><table class="facts"><tbody>'
    fact commit "$(commit)"
    fact version "$("$bin/rpsim" --version 2> /dev/null || echo "not known: no rpsim in $bin")"
    fact date "$(date -u '+%Y-%m-%d %H:%M UTC')"
    fact host "$(uname -n), $(uname -srm), $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo |
        sed -n 1p)"
    fact compiler "$(compiler)"
    fact pictures "$(gnuplot --version 2> /dev/null || echo 'gnuplot is missing: no pictures')"
    fact store "sqlite $(sqlite3 --version | cut -d' ' -f1)"
    fact "time for all entries" "$seconds s"
    echo '</tbody></table></div>'
    runs
    checksums
    echo '</section>'
}

contents()
{
    local i folder
    echo '<nav id="contents"><h2>Contents</h2><ul>'
    for folder in "${last[@]}"; do
        echo "<li><a href=\"#$(basename "$folder")\">$(title_of "$folder")</a></li>"
    done
    echo '<li><a href="#comparison">Figures of the paper: differences</a></li>'
    echo '<li><a href="#not-reproduced">What did not reproduce, and why</a></li>'
    for i in "${!places[@]}"; do
        [ -n "$(entries "${places[i]}")" ] || continue
        echo "<li><a href=\"#part-$i\">${headings[i]}</a><ul>"
        while read -r folder; do
            echo "<li><a href=\"#$(basename "$folder")\">$(title_of "$folder")</a></li>"
        done < <(entries "${places[i]}")
        echo '</ul></li>'
    done
    echo '<li><a href="#provenance">Provenance</a></li></ul></nav>'
}

page()
{
    local i folder name
    names=()
    failed=()
    for folder in "${numbered[@]}" "${last[@]}"; do
        name=$(basename "$folder")
        names+=("$name")
        [ "$(status_of "$name")" = 0 ] || failed+=("$name")
    done
    cat "$parts/head.html"
    echo '<style>'
    cat "$parts/page.css"
    echo '</style></head><body id="top"><main>'
    cat "$parts/introduction.html"
    if [ ${#failed[@]} -gt 0 ]; then
        echo '<p class="failed">Not everything could be made:'
        for name in "${failed[@]}"; do
            echo "<a href=\"#$name\">$name</a>"
        done
        echo '</p>'
    fi
    contents
    for folder in "${last[@]}"; do
        entry "$folder" 2
    done
    comparison
    not_reproduced
    for i in "${!places[@]}"; do
        [ -n "$(entries "${places[i]}")" ] || continue
        echo "<h2 id=\"part-$i\">${headings[i]}</h2>"
        while read -r folder; do
            entry "$folder" 3
        done < <(entries "${places[i]}")
    done
    provenance
    echo '</main></body></html>'
}
