"""The catalogue of 84 bad and edge inputs: each is tested, here or in a named test, or overruled for a stated reason."""

import re
from pathlib import Path

import test_bad_input
import test_bad_options
import test_bad_values

#: Tables whose keys begin with the number of an input.
TABLES = (
    test_bad_input.BEFORE_COMPUTE,
    test_bad_input.ACCEPTED,
    test_bad_options.BEFORE_COMPUTE,
    test_bad_values.ONCE_SEEN,
)

#: Number: the file and the test, for what is no row of a table.
NAMED = {
    10: ("test_bad_input", "test_10_a_block_beyond_the_memory_is_warned_of_and_its_run_refused"),
    11: ("test_bad_input", "test_11_blocks_of_one_row_are_warned_of_with_their_number"),
    12: ("test_bad_values", "test_12_integers_that_float64_cannot_hold_are_refused_with_their_row"),
    13: ("test_bad_input", "test_12_13_18_small_types_are_computed_in_float64_without_a_warning"),
    30: ("test_bad_input", "test_30_theta_of_zeros_gives_the_adjoint_at_zero"),
    41: ("test_bad_values", "test_41_one_class_has_no_finite_optimum_and_says_so"),
    53: ("test_bad_options", "test_53_more_draws_than_rows_are_made_with_a_warning"),
    54: ("test_bad_options", "test_54_more_rows_than_positive_scores_are_refused_without_replacement"),
    62: ("test_refit", "test_a_fit_that_fails_a_check_says_why_and_warns"),
    71: ("test_bad_options", "test_71_a_folder_that_cannot_be_written_is_refused"),
    72: ("test_bad_options", "test_72_a_store_that_is_the_input_or_lies_inside_a_zarr_group_is_refused"),
    79: ("test_schedulers", "test_a_cluster_without_workers_says_so_instead_of_waiting_for_ever"),
    80: ("test_bad_values", "test_80_dependent_columns_and_few_rows_are_accepted"),
    81: ("test_bad_values", "test_81_rows_without_an_adjoint_score_zero_and_are_never_drawn"),
    84: ("test_bad_options", "test_83_84_ranks_are_clipped_with_a_warning_and_ties_go_to_the_smaller_row"),
}

#: Number: what the catalogue says that does not hold here, and why. The rest of the row is tested where it stands.
OVERRULED = {
    2: "X of three dimensions is accepted where a model states `input_shape`; other models name the reshape",
    6: "global row numbers never need known blocks: their rows are counted, in one read that is logged",
    31: "the hint for a torch tensor is `.detach().cpu().numpy()`, which serves tensors on a GPU too",
    37: "the only form without labels is y=None (there is no argument y that could be used in silence)",
    51: "a float size in (0, 1] is a share of the rows",
    56: "beta=0 is allowed: the sample size is then infinite",
    58: "a Generator is refused with its remedy as well",
    63: "a start outside the set is projected, and a matrix may be taken at any theta: the set binds the fit alone",
    74: "no storage options travel: credentials come from the environment, a URL with a password is refused",
    77: "chunks that are missing from an input belong to the faults of a store (F10), tested with them",
    78: "a client need not have the GPU of its workers, so that the task says it, and not the call",
}


def numbers() -> set[int]:
    found = {int(m.group()) for table in TABLES for key in table if (m := re.match(r"\d+", key))}
    return found | set(NAMED)


def test_every_input_of_the_catalogue_is_tested_or_overruled():
    assert set(range(1, 85)) - numbers() == {37, 77}
    assert {37, 77} <= set(OVERRULED)
    assert numbers() | set(OVERRULED) <= set(range(1, 85))


def test_the_named_tests_exist():
    for file, name in NAMED.values():
        assert f"def {name}(" in (Path(__file__).parent / f"{file}.py").read_text(encoding="utf-8"), name


def test_no_row_is_overruled_without_a_reason():
    assert all(len(reason.split()) > 5 for reason in OVERRULED.values())
