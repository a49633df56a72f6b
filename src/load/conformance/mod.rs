//! The conformance suite of warehouses. [`conformance_tests`] runs it on each kind.
//!
//! Pages are built by hand (`pages`), so that a bug of `flatten` cannot hide a bug of `load`. Tables are read through
//! [`Reader`], as analysts read them.

pub(super) mod answers;
pub(super) mod compared;
pub(super) mod keys;
mod lab;
pub(super) mod others;
pub(super) mod pages;
pub(super) mod random;
pub(super) mod safety;
pub(super) mod throughput;

pub(super) use lab::{Kind, Lab, identity, opened_duckdb};
pub(super) use pages::{Answer, answer, answers_scan, day, page};

/// Makes one test of each case. `$make` returns a fresh `Box<dyn Kind>`. With `slow`, only `make test-slow` runs the
/// tests.
macro_rules! conformance_tests {
    (slow $make:path) => {
        crate::load::conformance::conformance_tests! { #[ignore = "slow: run by `make test-slow`"] $make }
    };
    ($(#[$attribute:meta])? $make:path) => {
        crate::load::conformance::conformance_tests! { @cases [$(#[$attribute])?] $make,
            answers: first_load_fills_every_table
            answers: p2_an_unchanged_rescan_touches_no_byte
            answers: p2_a_key_in_two_windows_is_one_row_after_a_scan_of_both
            answers: p4_an_edit_goes_to_the_history_and_replaces_children
            answers: p4_a_soft_delete_is_an_edit_of_its_own_kind
            answers: p4_a_vanished_row_is_marked_and_comes_back
            answers: p4_too_many_vanished_rows_are_withheld_until_accepted
            answers: p4_deleted_rows_do_not_vanish_from_a_scan_without_them
            answers: a_scan_without_a_flag_never_blanks_and_one_with_it_enriches
            answers: a_child_that_was_not_asked_for_moves_with_its_row
            answers: what_was_sent_unasked_is_stored_once_it_is_asked_for
            answers: a_deletion_seen_under_a_new_flag_is_a_deletion
            answers: p4_a_field_that_gets_a_column_is_no_edit
            answers: p4_another_hash_alone_is_no_edit
            answers: p1_collisions_keep_both_records
            answers: p1_a_stored_row_that_loses_a_collision_is_kept_once
            answers: p2_repeats_at_page_edges_are_one_row
            answers: p1_rows_outside_the_window_are_kept_by_key
            answers: a_scan_of_one_survey_touches_no_other
            answers: long_pages_with_lists_arrive_whole
            others: a_snapshot_does_not_depend_on_the_order_of_windows
            others: a_snapshot_does_not_depend_on_what_was_committed
            others: p1_a_session_of_weeks_has_each_of_its_snapshots_once
            others: an_edited_snapshot_replaces_its_attributes
            others: surveys_keep_every_version
            others: p4_a_scan_ends_what_a_webhook_alone_said
            others: p4_no_version_ends_before_it_began
            others: p1_commits_that_wait_for_publish_go_together
            others: p1_themes_that_lose_a_collision_are_rejects
            others: themes_are_edited_and_vanish
            others: p1_rejects_are_kept_once_with_their_text
            others: a_run_is_recorded_once
            safety: p2_applying_a_scan_again_changes_nothing
            safety: p2_a_failure_before_commit_leaves_nothing
            safety: p2_the_order_of_disjoint_windows_does_not_matter
            safety: a_window_without_rows_is_in_the_ledger_when_asked_for
            safety: the_ledger_gives_back_the_scans
            safety: p10_another_environment_is_refused
            keys: p2_a_key_in_two_windows_is_one_row_whatever_the_order
            keys: p2_scans_of_one_commit_leave_one_row_of_a_key
            keys: p4_a_loser_is_current_once_the_winner_has_vanished
            keys: p1_an_edit_of_a_loser_is_kept
            keys: p2_equal_times_are_decided_whatever_the_order_and_the_flags
            keys: p2_p4_random_keys_have_one_row_each
            compared: p1_a_comparison_tells_what_differs_and_changes_nothing
            compared: p1_a_comparison_sees_children_snapshots_and_rejects
            safety: a_batch_that_does_not_fit_is_refused
            safety: p1_a_page_that_lacks_a_record_is_refused
            random: p2_p4_random_histories_match_a_plain_model
            random: p4_as_of_equals_a_model_at_every_moment
            random: p2_p4_scans_that_are_sealed_together_match_a_plain_model
        }
    };
    (@cases $attributes:tt $make:path, $($group:ident: $case:ident)*) => {
        $(crate::load::conformance::conformance_tests! { @case $attributes $make, $group: $case })*
    };
    (@case [$(#[$attribute:meta])?] $make:path, $group:ident: $case:ident) => {
        #[test]
        $(#[$attribute])?
        fn $case() {
            crate::load::conformance::$group::$case(&mut crate::load::conformance::Lab::new($make()));
        }
    };
}
pub(super) use conformance_tests;
