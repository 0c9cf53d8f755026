//! The page in a real browser, on the embedded API server with objects whose statuses are written by hand.
//!
//! Arguments select scenarios by parts of their names. Without Chromium all are reported as ignored. `MANTA_PAGE_PICTURES`
//! names a folder that gets the pictures of the documentation, and `MANTA_PAGE_CLUSTERS` makes it a measurement.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the report of a test without a harness")]

mod accessibility;
mod actions;
mod bench;
mod objects;
mod pictures;
mod security;
mod views;
mod world;

use anyhow::Result;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use manta_testkit::{Browser, Tally};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use world::World;

type Run = for<'a> fn(&'a World) -> LocalBoxFuture<'a, Result<()>>;

/// Lists scenarios with their names.
macro_rules! scenarios {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), |world| Box::pin($module::$name(world)))),*]
    };
}

const SCENARIOS: &[(&str, Run)] = scenarios![
    views::the_overview_shows_all_kinds_and_finds_them,
    views::the_keyboard_is_enough,
    views::enter_presses_what_has_the_focus,
    views::a_cluster_is_drawn_pod_by_pod,
    views::an_explanation_follows_the_pods,
    views::containers_that_crashed_have_two_logs,
    views::a_log_shows_a_line_before_it_is_complete,
    views::a_failed_job_says_why_first,
    views::a_stopped_job_has_not_failed,
    views::a_service_shows_both_clusters_of_an_upgrade,
    views::a_cron_job_marks_the_runs_it_missed,
    views::the_operator_shows_who_leads_and_what_comes_next,
    views::changes_arrive_within_a_second,
    views::a_deleted_object_stays_on_screen,
    views::a_lost_connection_deletes_nothing,
    views::a_silent_connection_is_given_up,
    views::a_deleted_object_is_explained_from_its_record,
    views::a_tab_that_outlives_its_secret_asks_for_another,
    views::narrow_and_dark_screens_fit,
    views::times_follow_the_chosen_zone,
    actions::manifests_are_checked_while_they_are_written,
    actions::a_cluster_is_scaled_suspended_and_resumed,
    actions::a_failed_job_is_retried,
    actions::deleting_names_what_goes,
    actions::a_viewer_without_rights_is_told_why,
    actions::what_cannot_be_read_is_neither_awaited_nor_denied,
    actions::rights_are_those_of_the_objects_namespace,
    actions::a_token_opens_a_page_with_its_own_rights,
    actions::a_page_under_another_name_has_no_dashboards,
    security::requests_without_the_secret_are_refused,
    security::other_accounts_are_refused,
    security::other_origins_are_refused,
    security::rebound_names_are_refused,
    security::no_path_leads_out_of_the_files,
    security::no_name_leads_to_another_path,
    security::other_sites_in_the_browser_get_nothing,
    security::text_never_becomes_markup,
    security::output_never_becomes_markup,
    security::only_ray_kinds_are_created,
    accessibility::axe_finds_nothing_serious,
];

/// The timeout of one scenario; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(240);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let chosen: Vec<&(&str, Run)> = SCENARIOS.iter().filter(|(name, _)| is_wanted(name)).collect();
    let mut tally = Tally::default();
    if Browser::find().is_none() && (bench::wanted().is_some() || pictures::wanted().is_some()) {
        println!(
            "no Chromium is installed, so nothing was measured and no picture was taken; apt-get install chromium"
        );
        std::process::exit(1);
    }
    if Browser::find().is_none() {
        chosen.iter().for_each(|(name, _)| tally.skip(name, "no Chromium is installed"));
        std::process::exit(i32::from(!tally.finish()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        if let Some(clusters) = bench::wanted() {
            return bench::run(clusters, &mut tally).await;
        }
        if let Some(folder) = pictures::wanted() {
            return pictures::take(&folder).await.unwrap();
        }
        let world = World::start().await.unwrap();
        for (name, run) in chosen {
            if let Some(why) = accessibility::lacks(name).or_else(|| security::lacks(name)) {
                tally.skip(name, &why);
                continue;
            }
            let start = Instant::now();
            let done = tokio::time::timeout(TIMEOUT, AssertUnwindSafe(run(&world)).catch_unwind()).await;
            let passed = match done {
                Ok(Ok(Ok(()))) => true,
                Ok(Ok(Err(error))) => {
                    println!("{name}: {error:#}");
                    false
                }
                Ok(Err(_)) => false,
                Err(_) => {
                    println!("{name}: timed out");
                    false
                }
            };
            tally.record(name, passed, start.elapsed());
        }
    });
    std::process::exit(i32::from(!tally.finish()));
}
