#!/usr/bin/env bash
# Only common/base/mem.c allocates. Tests are exempt.
source "$(dirname "$0")/lib/lint.sh"

names='malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|alloca|free|mmap|munmap|mremap'
names+='|sbrk|strdup|strndup|asprintf|vasprintf|getline|getdelim|open_memstream'
mapfile -t files < <(lint_files "c h cu inc" common sim exec experiments | grep -vx 'common/base/mem.c')
lint_bare "${files[@]}" |
    { grep -E "(^|[^A-Za-z0-9_.>])($names)[[:space:]]*\(" || true; } |
    lint_report "only common/base/mem.c allocates (common/base/mem.h)"
lint_end
