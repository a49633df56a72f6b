//! `studysync check`: checks everything that a run needs.

mod service;
mod storage;

use clap::Args;
use serde::Serialize;

use crate::{
    model::Stream,
    pipeline::{self, Measured},
};

use super::{
    CommandError, Context,
    flags::{LimitArgs, LocationArgs},
    printer::Printer,
    service_profile::describe_measured,
    signals::end_on_signal,
};
use storage::Finding;

/// Checks whose failure does not prevent measuring the service profile. A list that fails only leaves its own
/// behaviours unknown.
const NOT_NEEDED_BY_PROFILE: [&str; 11] = [
    "archive",
    "warehouse",
    "extensions",
    "publish",
    "search",
    "recordings",
    "disk",
    "open files",
    "serve",
    "metrics",
    "notify",
];

/// Checks everything that a run needs, with a hint for each failure.
///
/// The checks: the service answers and accepts the key, the clocks agree, proxy and certificates work, state, archive,
/// warehouse and the copy for readers can be written, the disks have room, and `serve` could start. They take some
/// seconds and pull no data. A low limit of open files is named too. With `full_text_search`, and for
/// a warehouse in a catalog, the command also loads DuckDB's extensions.
///
/// With --service-profile the command also measures behaviours that the service's documents leave open: the order of
/// lists, the meaning of `start` and `end`, how a list ends, rows that share a millisecond at a page boundary, the
/// largest page that arrives in time, the states of surveys that are listed by default, the unit of the times of users
/// (it reads at most three users), and the environments of webhooks. It sends at most 60 requests. It shows and stores
/// each known behaviour with its value, its date and how it was measured, then names the unknown ones; --json says why
/// each is unknown. Runs use the stored values, and `status --json` has them. An unknown behaviour is no failure: a
/// service with few rows shows few behaviours, and no request provokes an error.
///
/// With --notify the command sends a test message to the command and the webhook of `[notify]`.
///
/// Exit codes: 0 all checks passed; 1 a check failed; 2 usage or configuration; 3 a clock is days off; 4 key refused; 5
/// another run holds the lease; 6 rate limited: try later; 130 interrupted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync check
  studysync check --service-profile")]
pub(super) struct CheckArgs {
    /// Also measure behaviours of the service that its documents leave open
    #[arg(long, alias = "traits")]
    service_profile: bool,

    /// Also send a test message to the command and webhook of `[notify]`
    #[arg(long)]
    notify: bool,

    /// Print JSON on stdout: a list of findings; with --service-profile an object with findings and traits
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

/// The JSON of `check --service-profile`.
#[derive(Serialize)]
struct CheckJson<'a> {
    findings: &'a [Finding],
    /// `None` if the behaviours were not measured.
    traits: Option<&'a [Measured]>,
}

/// The findings so far.
struct Findings<'a> {
    /// Prints each finding at once; `None` with `--json`.
    printer: Option<&'a Printer>,
    list: Vec<Finding>,
}

impl Findings<'_> {
    /// Adds findings, and prints them at once unless the command prints JSON.
    fn add(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<(), CommandError> {
        for finding in findings {
            if let Some(printer) = self.printer {
                printer.print(&finding.describe())?;
            }
            self.list.push(finding);
        }
        Ok(())
    }

    /// Returns true if no check failed on which the measurement of the service profile depends.
    fn allow_profile(&self) -> bool {
        let is_needed = |what: &str| {
            !NOT_NEEDED_BY_PROFILE.contains(&what) && Stream::LISTS.into_iter().all(|list| list.name() != what)
        };
        self.list.iter().all(|finding| finding.is_well || !is_needed(finding.what))
    }

    /// Returns the exit code of the first failed check; 0 if no check failed.
    fn exit_code(&self) -> u8 {
        self.list.iter().map(|finding| finding.exit_code).find(|code| *code != 0).unwrap_or(0)
    }
}

/// Runs the checks, prints the findings, and returns the exit code of the first failed check. The service profile is
/// measured only if the checks that it needs succeeded.
pub(super) async fn run(args: CheckArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).limits(&args.limits).build()?;
    settings.base_url()?;
    end_on_signal();
    let mut findings = Findings { printer: (!args.json).then_some(&context.printer), list: Vec::new() };
    findings.add(service::network(&settings))?;
    findings.add(service::findings(&settings, &context).await)?;
    findings.add([storage::state(&settings), storage::archive(&settings)])?;
    // Exit code 5 means that a run holds the lease. The run also locks the warehouse, so the warehouse is not checked.
    if findings.list.iter().all(|finding| finding.exit_code != 5) {
        findings.add([storage::warehouse(&settings)])?;
    }
    findings.add(storage::extensions(&settings))?;
    findings.add(storage::disks(&settings))?;
    findings.add(storage::copies(&settings))?;
    findings.add(storage::recordings(&settings))?;
    findings.add(storage::full_text_search(&settings))?;
    findings.add(service::open_files())?;
    findings.add([service::serve(&settings)])?;
    findings.add(service::watching(&settings))?;
    if args.notify {
        findings.add(service::send_tests(&settings).await)?;
    }
    let mut measured = None;
    if args.service_profile && findings.allow_profile() {
        match pipeline::measure_service_profile(&settings).await {
            Ok(behaviours) => measured = Some(behaviours),
            Err(error) => findings.add([Finding::error("traits", error)])?,
        }
    }
    match (args.json, args.service_profile, measured.as_deref()) {
        (true, false, _) => context.printer.print_json(&findings.list)?,
        (true, true, traits) => context.printer.print_json(&CheckJson { findings: &findings.list, traits })?,
        (false, _, Some(behaviours)) => context.printer.print(&describe_measured(behaviours))?,
        (false, _, None) => {}
    }
    Ok(findings.exit_code())
}
