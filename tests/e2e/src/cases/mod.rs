//! The cases, one file each, in the order they run: what needs least comes first, what breaks the cluster last.

mod chart_render;
mod chart_test;
mod control;
mod faults;
mod kubectl_lane;
mod o01_namespace;
mod o02_uninstall;
mod o04_idle;
mod o06_storage;
mod o08_embedder;
mod o10_names;
mod o11_image;
mod o12_upgrade;
mod o15_unknown_embedder;
mod o17_quota;
mod o18_gpu;
mod o22_adoption;
mod o23_double_claim;
mod o26_force_delete;
mod o27_restarts;
mod o31_qdrant_key;

use crate::case::{Case, Need};

macro_rules! case {
    ($number:literal, $name:literal, $need:ident, $steps:path) => {
        Case { number: $number, name: $name, need: Need::$need, steps: |world| Box::pin($steps(world)) }
    };
}

/// Every case.
pub(crate) const ALL: &[Case] = &[
    case!("chart", "the_chart_renders_as_kept_and_refuses_unknown_values", Kinds, chart_render::run),
    case!("O6", "o06_a_volume_grows_and_never_shrinks", Kinds, o06_storage::run),
    case!("O10a", "o10_a_name_over_the_limit_is_refused_with_the_number", Kinds, o10_names::refused),
    case!("control", "a_marker_saved_in_one_lane_is_nowhere_in_the_other", Product, control::run),
    case!("plugin", "kubectl_lane_tells_asks_and_adopts", Product, kubectl_lane::run),
    case!("helm-test", "the_charts_own_test_saves_and_recalls", Product, chart_test::run),
    case!("O10", "o10_a_name_at_the_limit_works_fully", Product, o10_names::works),
    case!("O1", "o01_a_deleted_namespace_takes_its_lanes_along", Product, o01_namespace::run),
    case!("O8", "o08_a_shared_embedder_goes_with_its_last_lane", Product, o08_embedder::run),
    case!("O22", "o22_a_retained_lane_opens_for_its_owner_alone", Product, o22_adoption::run),
    case!("O23", "o23_two_claims_end_with_one_writer", Product, o23_double_claim::run),
    case!("O17", "o17_a_quota_is_named_and_its_end_noticed", Product, o17_quota::run),
    case!("O18", "o18_the_reason_a_gpu_is_missing_is_named", OwnCluster, o18_gpu::run),
    case!("O12", "o12_an_upgrade_moves_no_store_and_fails_no_request", Product, o12_upgrade::run),
    case!("O11", "o11_a_bad_image_heals_by_itself", Product, o11_image::run),
    case!("O15", "o15_an_unknown_embedder_is_asked_for_less_and_less", Product, o15_unknown_embedder::run),
    case!("O26", "o26_a_store_killed_under_load_loses_nothing", Product, o26_force_delete::run),
    case!("O27", "o27_restarts_under_load_leave_the_chain_whole", Product, o27_restarts::run),
    case!("O31", "o31_a_new_qdrant_key_is_picked_up", OwnCluster, o31_qdrant_key::run),
    case!("faults", "what_goes_away_and_comes_back_costs_no_acknowledged_save", OwnCluster, faults::run),
    case!("O4", "o04_an_idle_lane_costs_no_write", Product, o04_idle::run),
    case!("O2", "o02_an_uninstall_in_between_loses_nothing", Product, o02_uninstall::run),
];
