"""The emulator's comparison of CUDA operators with the host's (cuda.emulated), and the emulator under ThreadSanitizer
(cuda.races), notice errors in the kernels. MUTATE (exec/cuda/kernels/mutants.h) marks the place of each error; here a
file of kernels is compiled with a single error, and the named operator must fail. Everyday the list of errors is
checked, with RP_LONG=1 each is tried; `RP_LONG=1 python3 -m pytest ... -k NAME` tries those of a name.
"""

import json
import re

import pytest

from conftest import BUILD, LONG, SOURCE, ran

TESTS = BUILD / "exec/cuda/tests"
UNALIGNED = "emulator: .*not aligned"
RACE = "WARNING: ThreadSanitizer: data race"
OPERATOR = r"^{}[ ,].*tensor [0-9]+: .*(times what is allowed|leaves other bits|written outside)"
# FILE FAMILY TYPE EXPECTED, then names of errors. EXPECTED is an operator whose results must differ, or a message of
# the emulator. Family races/NAME runs under ThreadSanitizer.
MUTANTS = f"""
attention_half_backward attention bf16 attention_backward: heads_without_sequences last_query_of_window
    first_head_of_group dk_without_scale dq_without_scale sums_of_other_half mask_of_half_the_keys
    mask_of_half_the_queries floats_of_stage_before last_block_without_last_key keys_beyond_sequence
    first_key_of_window last_key_of_window
attention_half_backward attention bf16 emulator: .*copies that nobody waits for: waits_too_late
attention_half_backward races/attention bf16 {RACE}: key_stages_overwritten query_stages_overwritten
    kept_tiles_overwritten
attention_half_backward refusals bf16 {UNALIGNED}: dv_unaligned
attention_half attention bf16 attention: first_key_of_window last_key_of_window logsumexp_of_first_head
    tokens_of_one_head sum_does_not_shrink logsumexp_without_scale
attention_half races/attention bf16 {RACE}: values_overwritten
attention_half refusals bf16 {UNALIGNED}: o_unaligned
attention attention bf16 join_sinks: sink_of_token
attention attention bf16 sinks_weight: sinks_other_sign
attention attention bf16 attention_backward: logsumexp_of_e sums_by_token
attention attention bf16 {UNALIGNED}: d_o_unaligned
attention attention fp32 attention: scores_without_cap caps_that_cut
attention attention fp32 attention_backward: first_columns_only dq_without_slope dk_without_slope
norm values bf16 rms_norm: weights_without_one
norm values bf16 rms_norm_input: sums_without_one norm_base_lost first_row_of_base
norm values fp32 rms_norm_input: dx_for_base
norm values bf16 {UNALIGNED}: norm_base_unaligned
norm values bf16 rms_norm_weight: parts_added_twice first_part_of_each_warp tree_without_barriers old_gradient_lost
    wide_norm_sums_as_half
norm values fp32 rms_norm_weight: columns_beyond_32
norm values bf16 bias_weight: bias_scaled
norm races/values bf16 {RACE}: tree_without_barriers
products_half products bf16 linear: result_for_base halves_exchanged last_column_without_base rounded_before_base
products_half products bf16 linear_weight: every_other_sum_anew wide_sums_rounded never_wide
products_half products bf16 {UNALIGNED}: wide_pairs_aligned_as_half base_unaligned
products_half experts bf16 experts_linear_weight: first_matrix_for_all
products products fp32 linear: result_for_base_fp32 base_lost
values values bf16 swiglu: sigmoid_other_sign swiglu_without_up
values values bf16 swiglu_backward: slope_of_sigmoid
values values bf16 geglu: geglu_without_cube
values values bf16 geglu_backward: slope_of_cube
values values bf16 rotate: partners_half_a_head_away angles_beyond_sequence inverse_turns_forward
values values bf16 {UNALIGNED}: packs_as_pairs gradients_unaligned up_unaligned
values values bf16 add_bias: bias_beyond_row
values values fp32 add_bias: first_bias_for_all
values values bf16 add_sums: gradients_replaced sums_rounded tail_of_sums_as_pack
tokens tokens bf16 embed: row_of_first_token tail_of_row_as_pack warps_tokens_descending seen_among_first_256
    first_token_twice first_256_of_bin descending_tokens wide_table_as_half rounded_after_each_token
tokens tokens bf16 {UNALIGNED}: wide_table_unaligned
tokens tokens bf16 cross_entropy: loss_sum_does_not_shrink sum_beyond_vocabulary largest_beyond_vocabulary own_largest
    label_overwritten loss_without_slope loss_so_far_lost
tokens tokens bf16 cross_entropy_part: label_without_cap own_largest_of_parts
tokens races/tokens bf16 {RACE}: counts_overwritten largest_of_warps_to_come label_being_overwritten
experts experts bf16 experts_swiglu: swiglu_without_weights up_without_one
experts experts bf16 experts_swiglu_backward: gates_beyond_limit dup_without_weight own_gradient_with_weight
experts experts bf16 experts_bias: bias_of_expert_behind
experts experts bf16 experts_bias_input: weight_gradients_lost
experts experts bf16 experts_bias_weight: bias_without_weights
experts experts bf16 {UNALIGNED}: dup_unaligned
"""
GROUPS = [line.rsplit(": ", 1) for line in MUTANTS.strip().replace("\n    ", " ").splitlines()]
ROWS = [(name, *group.split(maxsplit=3)) for group, names in GROUPS for name in names.split()]


def link_command(program):
    """How the build links a program of the tests, in its folder."""
    if (BUILD / "build.ninja").exists():
        return ran("ninja -t commands", program, cwd=BUILD).out.splitlines()[-1]
    return f"cd {TESTS} && {(TESTS / f'CMakeFiles/{program}.dir/link.txt').read_text()}"


def built(program, library, unit, name, folder):
    """The program, whose kernels of the unit have the error."""
    theirs, ours = rf"CMakeFiles/{library}.dir/__/kernels/{unit}.cu.o", folder / "mutant.o"
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    [command] = [entry["command"] for entry in entries if theirs in entry["command"]]
    command = command.split(" -o ")[0].replace(" -I", f" -I{SOURCE} -I", 1)
    ran("sh -c", f"{command} -DMUTANT_{name}=, -o {ours} -c {SOURCE}/exec/cuda/kernels/{unit}.cu", cwd=BUILD)
    link, replaced = re.subn(rf"\S*{re.escape(theirs)}", str(ours), link_command(program))
    assert replaced == 1
    ran("sh -c", re.sub(rf" -o \S*{program} ", f" -o {folder}/{program} ", link), cwd=BUILD)
    return folder / program


def test_list():
    """Every place of an error is in the list, and only these."""
    texts = [file.read_text() for file in (SOURCE / "exec/cuda/kernels").glob("*.cu*")]
    assert len(ROWS) == 109
    assert {name for text in texts for name in re.findall(r"MUTATE\(\s*(\w+)", text)} == {row[0] for row in ROWS}


@pytest.mark.skipif(not LONG, reason="RP_LONG=1")
@pytest.mark.parametrize("name, unit, family, dtype, expected", ROWS)
def test_mutant(tmp_path, name, unit, family, dtype, expected):
    program, library = "emulated_compare", "rp_emulated"
    if family.startswith("races/"):
        program, library = "emulated_races", "rp_raced_kernels"
    if not (TESTS / program).exists():
        pytest.skip("no emulated CUDA operators in this build")
    [cublas] = TESTS.glob("libemulated_cublas.*")
    env = {"RPEXEC_CUBLASLT": cublas, "RPEXEC_CUDNN": "none", "TSAN_OPTIONS": "exitcode=66", "OPENBLAS_NUM_THREADS": 1}
    mutant = built(program, library, unit, name, tmp_path)
    result = ran(mutant, family.removeprefix("races/"), dtype, prefix=["timeout", "120"], env=env, status=None)
    assert result.status != 0, "the error was not noticed"
    assert re.search(expected if ":" in expected else OPERATOR.format(expected), result.said, re.M), str(result)
