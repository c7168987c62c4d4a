# Sourced by the make.sh of a figure, study or plot: make.sh BINDIR OUTDIR. Sets figure (its folder),
# name, paper (this tree's paper-figures), plots, traces, out (OUTDIR, made if missing) and store (the
# SQLite store of its runs: RP_STORE, or paper.db in OUTDIR).
set -euo pipefail
export LC_ALL=C.UTF-8

if [ $# -ne 2 ]; then
    echo "usage: make.sh BINDIR OUTDIR" >&2
    exit 2
fi
figure=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
name=$(basename "$figure")
paper=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
plots=$paper/../plots
traces=$paper/../traces
mkdir -p "$2"
out=$(cd "$2" && pwd)
store=${RP_STORE:-$out/paper.db}
case $paper$out in
*"'"*)
    echo "$name: gnuplot takes no folder with a single quote in its name" >&2
    exit 2
    ;;
esac

# workspace: sets bin (BINDIR) and work, a folder that goes when the script ends. It is on the file
# system of OUTDIR, so that a move there leaves nothing half written.
bin_folder=$1
workspace()
{
    bin=$(cd "$bin_folder" && pwd)
    work=$(mktemp -d "$out/.$name.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# draw [VARIABLE=TEXT]...: the pictures of OUTDIR/NAME.csv as SVG, PNG and PDF, or as RP_FORMS says; further files and
# settings for the script as variables, out=FILE for another name than OUTDIR/NAME (without the
# ending). A script that has a narrow form (narrow = 1) is drawn as FILE.narrow.svg, too. Without gnuplot
# the data are all there is.
draw()
{
    local ext form more= to=$out/$name messages status=0 forms
    read -ra forms <<< "${RP_FORMS:-svg png pdf}"
    if ! command -v gnuplot > /dev/null; then
        echo "$name: not drawn, gnuplot is missing (Debian package gnuplot-nox)" >&2
        return 0
    fi
    for ext in "$@"; do
        more+="${ext%%=*}='${ext#*=}'; "
        case $ext in out=*) to=${ext#out=} ;; esac
    done
    ! grep -qw narrow "$figure/figure.gp" || forms+=(narrow.svg)
    for form in "${forms[@]}"; do
        ext=${form#narrow.}
        [ "$form" = "$ext" ] || more+="out='$to.narrow'; "
        messages=$(gnuplot -e "root='$plots'; data='$out/$name.csv'; out='$to'; ext='$ext'; narrow=$([ "$form" = "$ext" ]; echo $?); $more" \
            "$figure/figure.gp" 2>&1) || status=$?
        [ -z "$messages" ] || echo "$messages" >&2
        # gnuplot ends with 0 on a full disk.
        if [ $status -eq 0 ] && ! tail -c 64 "$to.$form" | LC_ALL=C grep -qaE '</svg>|IEND|%%EOF'; then
            echo "$name: $to.$form is incomplete: is the disk full?" >&2
            status=1
        fi
        # gnuplot goes on if a command that it runs fails.
        if [ $status -ne 0 ] || grep -q '^[gm]*awk: ' <<< "$messages"; then
            rm -f "$to.$form"
            return 1
        fi
        # Equal pictures are equal bytes: without the time of drawing.
        [ "$form" != pdf ] || [ ! -f "$to.pdf" ] ||
            LC_ALL=C sed -i 's|\(/CreationDate (D:\)[0-9]\{14\}|\100000000000000|' "$to.pdf"
        echo "$to.$form"
    done
}
