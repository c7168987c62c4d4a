#!/usr/bin/env bash
# resources.sh OBJECT COMPILER...: compiles as the command says and keeps what ptxas tells of each kernel (registers,
# shared memory, stack, spills) beside the object, for tests/checks/test_cuda_resources.py. Everything else that the compiler
# says goes where it would have gone.
object=$1
shift
status=0
"$@" -Xptxas -v 2>"$object.said" || status=$?
of_ptxas='^ptxas info|^ {4}[0-9]+ bytes stack frame'
grep -vE "$of_ptxas" "$object.said" >&2
grep -E "$of_ptxas" "$object.said" >"$object.resources"
rm -f "$object.said"
exit $status
