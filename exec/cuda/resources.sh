#!/usr/bin/env bash
# resources.sh OBJECT COMPILER...: runs the compiler, and keeps each kernel's registers, shared memory, stack and spills,
# as ptxas says, beside the object for tests/checks/test_cuda_resources.py. Other messages stay on stderr.
object=$1
shift
status=0
"$@" -Xptxas -v 2>"$object.said" || status=$?
of_ptxas='^ptxas info|^ {4}[0-9]+ bytes stack frame'
grep -vE "$of_ptxas" "$object.said" >&2
grep -E "$of_ptxas" "$object.said" >"$object.resources"
rm -f "$object.said"
exit $status
