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
        -e 's#<table>#<div class="scroll" tabindex="0"><table>#g' -e 's#</table>#</table></div>#g'
}

# files_of NAME EXT: NAME.EXT and NAME-*.EXT in OUTDIR, without those of an entry with a longer name
# and without the narrow forms of pictures.
files_of()
{
    local file other mine
    for file in "$out/$1.$2" "$out/$1"-*."$2"; do
        [ -s "$file" ] || continue
        case $file in *.narrow.*) continue ;; esac
        mine=yes
        for other in "${names[@]}"; do
            case $other in
            "$1"-*) case $(basename "$file" ".$2") in "$other" | "$other"-*) mine=no ;; esac ;;
            esac
        done
        [ $mine = no ] || echo "$file"
    done
}

# caption_of NAME FILE: the words on a picture or table beside the entry's title.
caption_of()
{
    local base
    base=$(basename "$2")
    base=${base%.*}
    base=${base#"$1"}
    echo "${base#-}" | tr '-' ' '
}

# heading LEVEL ID TEXT: a heading with a link to itself; the id is that of its section.
heading()
{
    echo "<h$1>$3 <a class=\"permalink\" href=\"#$2\" aria-label=\"link to this section\">#</a></h$1>"
}

# part_of FOLDER PART: that part of its README as HTML.
part_of()
{
    [ -f "$1/README.md" ] || return 0
    awk -v part="$2" -f "$parts/readme.awk" "$1/README.md" > "$work/part.md"
    ! grep -q '[^[:space:]]' "$work/part.md" || html_of "$work/part.md"
}

# what_shows FOLDER SUFFIX: the content of its picture of that suffix, as plain text; may be empty.
what_shows()
{
    [ ! -f "$1/README.md" ] || awk -v part=picture -f "$parts/readme.awk" "$1/README.md" |
        awk -v suffix="$2" -f "$parts/picture.awk"
}

# drawing ID TEXT FILE: an SVG file as a part of the page, with a text for who cannot see it.
drawing()
{
    ID=$1 TEXT=$2 awk -f "$parts/text.awk" -f "$parts/svg.awk" "$3" "$3"
}

# picture FOLDER FILE: with its narrow form, if it has one, for narrow windows.
picture()
{
    local name base caption shows title narrow=${2%.svg}.narrow.svg
    name=$(basename "$1")
    base=$(basename "$2" .svg)
    title=$(title_of "$1")
    caption=$(caption_of "$name" "$2")
    shows=$(what_shows "$1" "${base#"$name"}")
    title=$title${caption:+: $caption}
    echo "<figure><div class=\"larger\"><input type=\"checkbox\" id=\"$base-larger\" /><label for=\"$base-larger\">larger</label></div>"
    echo "<div class=\"picture$([ ! -s "$narrow" ] || echo ' wide')\" tabindex=\"0\">"
    drawing "$base" "$(sed 's/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' <<< "$title"). $shows" "$2"
    echo "</div>"
    if [ -s "$narrow" ]; then
        echo "<div class=\"picture narrow\">"
        drawing "$base-narrow" "$(sed 's/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' <<< "$title"). $shows" "$narrow"
        echo "</div>"
    fi
    echo "<figcaption><b>$title.</b> $(escape <<< "$shows")</figcaption></figure>"
}

# table_of FILE: a CSV file, folded, with a link to the file beside the page.
table_of()
{
    local rows limit=400
    rows=$(($(wc -l < "$1") - 1))
    echo "<details class=\"data\"><summary>$(basename "$1"): $rows rows</summary><p><a href=\"$(basename "$1")\">The file</a>" \
        "beside this page has all rows and digits.</p>"
    [ "$rows" -le $limit ] || echo "<p>The first $limit rows:</p>"
    echo "<div class=\"scroll tall\" tabindex=\"0\">"
    awk -v limit=$limit -f "$parts/text.awk" -f "$parts/table.awk" "$1"
    echo "</div></details>"
}

# entry FOLDER LEVEL: the section, with a heading of that level: question and findings, the pictures and tables; folded
# below them method and data.
entry()
{
    local folder=$1 level=$2 name status file
    name=$(basename "$folder")
    status=$(status_of "$name")
    echo "<section class=\"entry\" id=\"$name\">"
    heading "$level" "$name" "$(title_of "$folder")"
    if [ "$status" != 0 ]; then
        if [ -z "$status" ]; then
            echo "<p class=\"failed\">Not made: its make.sh has not run.</p>"
        else
            echo "<p class=\"failed\">Failed: its make.sh ended with exit status $status. It said:</p><pre>"
            tail -n 20 "$logs/$name.log" | tr -d '\000-\010\013-\037' | escape
            echo "</pre>"
        fi
    fi
    part_of "$folder" question
    part_of "$folder" kind
    part_of "$folder" finding
    if [ "$status" = 0 ]; then
        while read -r file; do
            picture "$folder" "$file"
        done < <(files_of "$name" svg)
        # The first part is the answer; parts with a heading are folded.
        while read -r file; do
            html_of "$file" | awk '/^<h4>/ {
                    gsub(/<\/?h4>/, "")
                    print (open ? "</details>" : "") "<details class=\"method\"><summary>" $0 "</summary>"
                    open = 1
                    next
                }
                { print }
                END { if (open) print "</details>" }'
        done < <(files_of "$name" md)
    fi
    part_of "$folder" method > "$work/method.html"
    if [ -s "$work/method.html" ]; then
        echo "<details class=\"method\"><summary>How this was made</summary>"
        cat "$work/method.html"
        echo "</details>"
    fi
    if [ "$status" = 0 ]; then
        while read -r file; do
            table_of "$file"
        done < <(files_of "$name" csv)
    fi
    echo "</section>"
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
    echo '<section id="comparison">'
    heading 2 comparison 'Figures of the paper: differences'
    echo '<p>Signed differences, ours against published: in percent of the published value, or without a unit in
that of the table (ms, percentage points). Cells that a constant of the model was set on are no predictions: they
are counted and left out. Cells that are out of memory on one side only have no difference and are counted, too.</p>'
    echo '<div class="scroll" tabindex="0"><table><thead><tr><th>figure</th><th>kind</th><th class="n">cells</th>'
    echo '<th class="n">mean</th><th class="n">worst</th><th>not counted</th></tr></thead><tbody>'
    while read -r folder; do
        comparison_row "$folder"
    done < <(entries "${places[0]}")
    echo '</tbody></table></div></section>'
}

not_reproduced()
{
    local folder name
    echo '<section id="not-reproduced">'
    heading 2 not-reproduced 'What did not reproduce, and why'
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
    echo "<p>Runs in this build's store, which began empty:</p><div class=\"scroll\" tabindex=\"0\">"
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
    echo '<section id="provenance">'
    heading 2 provenance Provenance
    echo '<div class="scroll" tabindex="0"><table class="facts"><tbody>'
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

# contents: a bar that stays at the top, with a list that opens while it has the focus: the page has no
# scripts, and after a link is followed the list is closed again.
contents()
{
    local i folder
    echo '<nav id="contents" aria-label="Contents"><ul class="bar">'
    echo '<li class="all"><span tabindex="0" role="button" aria-haspopup="true">Contents</span><div class="list" tabindex="-1"><ul>'
    echo '<li><a href="#summary">Summary</a></li>'
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
    echo '<li><a href="#provenance">Provenance</a></li></ul></div></li>'
    echo '<li><a href="#summary">Summary</a></li><li><a href="#comparison">Differences</a></li>'
    for i in "${!places[@]}"; do
        [ -z "$(entries "${places[i]}")" ] || echo "<li><a href=\"#part-$i\">${short[i]}</a></li>"
    done
    echo '</ul></nav>'
}

# summary: the first screen: three sentences, the verdicts on the paper's claims, a picture.
summary()
{
    local folder=$here/claims picture=$out/claims.narrow.svg file name made=()
    [ -s "$picture" ] || picture=$out/claims.svg
    # Files of a failed entry do not count.
    for file in 17-bubbles:17-bubbles.csv 10-throughput:prediction.md claims:claims.md; do
        name=${file%:*}
        [ "$(status_of "$name")" != 0 ] || [ ! -s "$out/${file#*:}" ] || made+=("$out/${file#*:}")
    done
    echo '<section id="summary">'
    cat "$parts/introduction.html"
    echo '<div class="columns"><div><ul class="sentences">'
    awk -v what=sentences -f "$parts/text.awk" -f "$parts/summary.awk" "${made[@]}" < /dev/null
    echo '</ul>'
    awk -v what=verdicts -f "$parts/text.awk" -f "$parts/summary.awk" "${made[@]}" < /dev/null
    if [ ${#failed[@]} -gt 0 ]; then
        echo '<p class="failed">Not everything could be made:'
        for name in "${failed[@]}"; do
            echo "<a href=\"#$name\">$name</a>"
        done
        echo '</p>'
    fi
    echo '</div>'
    if [ "$(status_of claims)" = 0 ] && [ -s "$picture" ]; then
        echo '<figure>'
        drawing summary-picture "$(title_of "$folder"). $(what_shows "$folder" '')" "$picture"
        echo '<figcaption>Four of the claims, model by model: published and simulated, and what is claimed.</figcaption></figure>'
    fi
    echo '</div>'
    cat "$parts/words.html"
    echo '</section>'
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
    echo '</style></head><body id="top">'
    contents
    echo '<main>'
    summary
    for folder in "${last[@]}"; do
        entry "$folder" 2
    done
    comparison
    not_reproduced
    for i in "${!places[@]}"; do
        [ -n "$(entries "${places[i]}")" ] || continue
        echo "<section id=\"part-$i\">"
        heading 2 "part-$i" "${headings[i]}"
        while read -r folder; do
            entry "$folder" 3
        done < <(entries "${places[i]}")
        echo '</section>'
    done
    provenance
    echo '</main></body></html>'
}
