"""The failures that other servers were reported with, and the tests that show that this server has none of them.

`CATALOGUE` names them all by their numbers. What no other file of tests shows is in those called test_failures_of_*.
Source: reference/serving.md §6, the failure catalogue.
"""

import re
from pathlib import Path

import pytest

SERVE = Path(__file__).parent.parent
REQUESTS, LOADING, TEXTS, PROCESS = (
    f"http/test_failures_of_{name}.py" for name in ("requests", "loading", "texts", "a_process")
)
REPORTS, SERVER, NATIVE, BODIES = (f"http/test_{name}.py" for name in ("reports", "server", "native", "bodies"))

CATALOGUE: dict[str, tuple[tuple[str, str], ...]] = {
    "1 one call pads its whole input": (
        (PROCESS, "one_long_text_among_many_pads_no_other"),
        ("test_batching.py", "rows_whose_lengths_are_far_apart_do_not_go_together"),
    ),
    "2 the engine never gives memory back": (
        (PROCESS, "memory_comes_back_after_a_long_text_only_where_it_is_asked_for"),
    ),
    "3 a long input blocks all others": (
        (REQUESTS, "a_text_that_is_too_long_is_refused_without_the_lane"),
        ("http/test_failures_of_reading.py", "a_text_that_is_far_too_long_is_refused_without_reading_all_of_it"),
        ("http/test_failures_of_reading.py", "a_deadline_ends_the_reading_of_a_text"),
        (REQUESTS, "texts_that_take_long_to_read_hold_no_short_one_up"),
        ("lane/test_order.py", "a_scan_holds_a_short_request_for_one_of_its_windows_at_most"),
    ),
    "4 warming up at full length takes all memory": (
        (LOADING, "a_model_of_long_documents_is_loaded_without_a_long_run"),
    ),
    "5 a full queue ends the process": (
        (REQUESTS, "ten_times_what_may_wait_is_answered_with_200_or_429"),
        (REPORTS, "a_full_queue_answers_429_with_retry_after"),
        ("lane/test_bounds.py", "a_full_queue_refuses_and_queues_nothing"),
    ),
    "6 a worker dies and health stays green": (
        (SERVER, "a_lane_that_dies_fails_its_callers_and_ends_the_process_with_1"),
        (SERVER, "a_lane_that_hangs_fails_its_callers_and_ends_the_process_with_1"),
        (REPORTS, "a_dead_lane_fails_requests_and_health"),
    ),
    "7 callers that leave wedge the queue": (
        (REQUESTS, "a_thousand_callers_that_leave_or_run_out_of_time_hold_nothing"),
        (REPORTS, "a_client_that_goes_away_frees_the_lane"),
        (REPORTS, "a_deadline_ends_what_runs_and_what_waits"),
        ("lane/test_ends.py", "a_thousand_requests_that_are_given_up_leave_no_trace"),
    ),
    "8 vectors of nan with status 200": (
        (REQUESTS, "a_vector_or_a_score_that_is_no_number_is_a_500_and_counted"),
        (REQUESTS, "a_text_of_any_length_has_the_same_vector_padded_and_alone"),
        (NATIVE, "a_value_that_is_not_finite_is_an_item_error_and_is_counted"),
        ("decode/test_embedding.py", "a_vector_of_zeros_is_an_error_and_never_nan"),
    ),
    "9 inputs are cut silently": (
        ("test_long_documents.py", "the_last_token_of_the_longest_document_counts"),
        ("test_long_documents.py", "one_token_more_is_refused_and_not_cut"),
        ("test_tokenization.py", "truncation_and_padding_of_the_file_are_off"),
        (NATIVE, "truncation_is_reported_in_body_and_header"),
    ),
    "10 another provider runs the graph": (
        (LOADING, "without_its_provider_a_server_is_alive_and_not_ready"),
        (SERVER, "what_cannot_be_served_is_said_in_one_line"),
    ),
    "11 a file for another engine or precision": (
        (LOADING, "a_graph_of_another_precision_or_target_is_not_served"),
        ("test_model.py", "a_device_without_graphs_of_its_target_is_refused"),
    ),
    "12 a stale program under the right name": (
        (LOADING, "a_stale_program_under_the_right_name_is_not_served"),
        ("test_golden_check.py", "the_registry_says_what_became_of_them"),
        ("test_model.py", "a_changed_file_is_refused_before_use"),
    ),
    "13 a compilation for every shape": (
        (LOADING, "no_length_makes_a_session"),
        (LOADING, "every_length_runs_on_the_smallest_fixed_graph_and_that_one_is_warm"),
    ),
    "14 a tokenizer that is in use": ((TEXTS, "sixteen_threads_that_cut_differently_read_as_one_does"),),
    "15 offsets in another unit": (
        (TEXTS, "a_slice_in_the_unit_that_was_asked_for_is_the_span_s_text"),
        ("test_offsets.py", "a_slice_in_the_callers_unit_is_the_spans_text"),
        ("test_tokenization.py", "slices_at_token_places_make_up_the_text"),
    ),
    "16 a normaliser moves offsets": ((TEXTS, "a_span_behind_what_a_normaliser_rewrites_stands_where_it_stood"),),
    "17 offsets count from the window": (
        ("test_long_documents.py", "a_span_across_every_edge_is_found_whole"),
        ("test_answers_by_hand.py", "spans_do_not_depend_on_windows_where_tokens_do_not_see_each_other"),
    ),
    "18 text that comes again is found once": (
        (TEXTS, "text_that_comes_again_is_found_in_each_place"),
        (TEXTS, "an_answer_s_spans_stay_whatever_its_context"),
    ),
    "19 cores that a process may not use": (
        (PROCESS, "on_one_core_it_serves_and_says_nothing"),
        ("test_host.py", "cores_follow_the_affinity_of_this_process"),
        ("test_host.py", "a_quota_cuts_the_cores_and_never_below_one"),
    ),
    "20 a huge or malformed body": (
        (PROCESS, "a_request_for_an_upgrade_is_answered_without_it"),
        (REQUESTS, "a_million_levels_are_a_400"),
        (REQUESTS, "a_body_without_end_is_read_up_to_the_limit"),
        (PROCESS, "what_is_no_request_is_refused_and_the_next_one_is_answered"),
        (PROCESS, "a_head_without_end_is_cut_off"),
        (PROCESS, "a_body_may_be_longer_than_a_head"),
        (PROCESS, "a_body_of_chunks_of_one_byte_is_answered"),
        (BODIES, "a_hostile_body_is_a_400_with_a_message"),
        (BODIES, "a_nul_and_control_characters_are_text"),
    ),
    "21 live and ready are one": (
        (REPORTS, "before_loading_it_is_alive_and_not_ready"),
        (REPORTS, "a_bundle_that_cannot_be_used_is_listed_with_its_reason"),
    ),
    "22 calls home and writes": (
        ("http/test_quiet.py", "no_address_outside_this_machine_is_asked_for"),
        ("http/test_quiet.py", "nothing_is_written"),
    ),
    "23 every request leaks": (
        (PROCESS, "thousands_of_requests_leave_memory_where_it_was"),
        (REQUESTS, "what_callers_make_up_is_not_kept"),
    ),
    "24 an idle server burns cores": ((PROCESS, "an_idle_server_rests"),),
    "25 limits count requests": (
        ("lane/test_bounds.py", "more_than_fits_into_memory_is_refused_however_soon_it_would_run"),
        ("lane/test_bounds.py", "a_short_request_is_taken_where_a_long_one_is_not"),
        ("test_joining.py", "long_rows_run_alone_and_short_ones_share"),
    ),
    "26 nodes of an artifact run elsewhere": ((LOADING, "without_its_provider_a_server_is_alive_and_not_ready"),),
}


def test_no_failure_of_the_catalogue_is_left_out() -> None:
    assert [int(failure.split()[0]) for failure in CATALOGUE] == list(range(1, 27))


@pytest.mark.parametrize("failure", CATALOGUE)
def test_a_failure_is_covered_by_tests_that_there_are(failure: str) -> None:
    for file, name in CATALOGUE[failure]:
        assert re.search(rf"^def test_{name}\(", (SERVE / file).read_text(), re.MULTILINE), f"{file}: {name}"
