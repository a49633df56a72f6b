//! `studysync erase`: people are forgotten, at the service and here.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::PathBuf,
};

use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    erase::{DELAY_SECONDS_MAX, Erase, EraseError, EraseRequest, NotFollowed, Plan, Receipt, read_people},
    model::{IdentifierKind, is_display_control},
    pipeline::{ResultsFound, System, flush_deliveries},
    recordings::StoredRecordings,
};

use super::{
    CommandError, Context,
    flags::{EffortFlags, PlaceFlags},
    sync::stop_on_signal,
};

/// Sessions, and lines of other kinds, that are listed in a plan.
/// Names under which the service purges people are all listed.
const LISTED_MAX: usize = 40;
/// The largest file of people that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Erases people at the service and everywhere here.
///
/// The command prints a plan first: whose rows, in which tables, pages and files. It searches for the named identifiers
/// and for identifiers linked to them (a user id is linked to its visitors, sessions and mail addresses). Identifiers
/// that other people share, or that link visitors without a user id, are reported and not followed. Unicode forms of
/// one name match each other, and so do the Unicode and ASCII forms of a mail domain.
///
/// Once confirmed, the service is asked to delete these people, at most 100 in a request. They are then removed from
/// every table, history, Parquet file, archived page, recording, reject, `users push` result and from the checkpoints.
/// The DuckDB file is rewritten, so that no byte is left. Then every file is searched for every identifier. The receipt
/// says what was searched, found and removed, and names nobody:
/// it is a file next to the state file, and a row of the table `erasures`.
///
/// The service continues to send these people until its delay (ten days by default) is over. A list of keyed hashes
/// keeps them out of scans, replays and webhooks until two days after that, and until complete scans have met none of
/// them. Back up the folder of this list (FILE.erasures next to the state file). Restored backups of the archive are
/// filtered as well. A restored warehouse is not: run the same command again.
///
/// Texts that other people wrote about them stay, and are counted by table (exit code 3). With --redact-mentions the
/// identifiers in these texts are replaced. The service still has the texts, and a scan that sees them changed brings
/// them back. A visitor's number, and an id of digits alone, is removed from columns and fields, and not searched for
/// in texts: any number could match. Log lines name nobody. The plan, also with --dry-run, names people on stderr: mind
/// where your scheduler stores stderr.
///
/// Your own tables, views and other objects in the DuckDB file stay. Your tables are searched, and matches are reported
/// (exit code 3). An object that prevents rewriting the file is reported before anything changes (exit code 2).
///
/// The same command resumes an erasure that was interrupted. After a finished erasure it finds nothing.
///
/// Exit codes: 0 done; 1 failed, the same command resumes; 2 usage or configuration; 3 done, but something needs
/// attention (mentions by others, identifiers that were not followed; with --dry-run also identifiers that nothing here
/// matches); 4 key refused; 5 another run holds the lease, or a program holds the file; 6 stopped early at a deadline,
/// a budget or a rate limit, the same command resumes; 130 interrupted or not confirmed.
#[derive(Args, Debug)]
pub(super) struct EraseArgs {
    /// Your own id of a person; repeatable
    #[arg(long = "user-id", value_name = "ID", help_heading = "Who")]
    user_ids: Vec<String>,

    /// A mail address; repeatable
    #[arg(long = "email", value_name = "ADDRESS", help_heading = "Who")]
    emails: Vec<String>,

    /// A visitor's UUID, or the number that responses give it; repeatable
    #[arg(long = "visitor-id", value_name = "ID", help_heading = "Who")]
    visitor_ids: Vec<String>,

    /// A file of people, one a line: `user-id ID`, `email ADDRESS` or `visitor-id ID`
    #[arg(long, value_name = "PATH", help_heading = "Who")]
    file: Option<PathBuf>,

    /// Delay before the service purges [default: the service's own, ten days]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=DELAY_SECONDS_MAX))]
    delay_seconds: Option<u64>,

    /// Send no deletion to the service: it was purged in another way, or will be
    #[arg(long, conflicts_with = "delay_seconds")]
    local_only: bool,

    /// Print the plan and stop
    #[arg(long)]
    dry_run: bool,

    /// Also replace the identifiers in texts of other people
    #[arg(long)]
    redact_mentions: bool,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Print one JSON object on stdout: the plan with --dry-run, else the receipt
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    effort: EffortFlags,
}

pub(super) async fn run(args: EraseArgs, context: Context) -> Result<u8, CommandError> {
    let request = request(&args)?;
    if !args.dry_run && !args.yes && !io::stdin().is_terminal() {
        return Err(CommandError::Usage(
            "nobody is there to confirm it: look at the plan with --dry-run, then say --yes".to_owned(),
        ));
    }
    let settings = args.place.given(&context).effort(&args.effort).settings()?;
    let stop = CancellationToken::new();
    let signals = tokio::spawn(stop_on_signal(stop.clone()));
    if !args.dry_run {
        // What webhooks told and no warehouse has yet is looked through with everything else.
        let flushed = flush_deliveries(&settings, &System::default(), &stop, true).await;
        flushed.map_err(CommandError::Pipeline)?;
    }
    // A plan needs no service, and no key.
    let asked = EraseRequest { local_only: request.local_only || args.dry_run, ..request };
    let planned = tokio::task::spawn_blocking(move || {
        let mut erase = Erase::open(settings, asked, stop)?;
        let plan = erase.plan()?;
        Ok::<_, EraseError>((erase, plan))
    });
    let planned = planned.await.map_err(|error| CommandError::failed("a part of the program stopped", error.into()))?;
    let (erase, plan) = planned.map_err(CommandError::NotErased)?;
    if args.dry_run && args.json {
        context.printer.print_json(&PlanJson::of(&plan))?;
    } else if args.dry_run {
        context.printer.print(&describe(&plan))?;
    } else {
        context.tell(&describe(&plan));
    }
    if args.dry_run {
        let is_clear =
            plan.identifiers.not_followed.is_empty() && plan.identifiers.is_complete && plan.unknown.is_empty();
        return Ok(if is_clear { 0 } else { 3 });
    }
    if !args.yes && !is_confirmed(plan.rows()) {
        talk("nothing was removed\n");
        return Ok(130);
    }
    let outcome = erase.apply(plan).await;
    signals.abort();
    let (receipt, path) = outcome.map_err(CommandError::Erase)?;
    if args.json {
        context.printer.print_json(&receipt)?;
    }
    context.tell(&summary(&receipt, &path.display().to_string()));
    Ok(receipt.exit_code)
}

fn request(args: &EraseArgs) -> Result<EraseRequest, CommandError> {
    let mut request = EraseRequest {
        delay_seconds: args.delay_seconds,
        local_only: args.local_only,
        redact_mentions: args.redact_mentions,
        ..EraseRequest::default()
    };
    let named = (args.user_ids.iter().map(|id| (IdentifierKind::UserId, id)))
        .chain(args.emails.iter().map(|email| (IdentifierKind::Email, email)))
        .chain(args.visitor_ids.iter().map(|id| (IdentifierKind::VisitorUuid, id)));
    for (kind, text) in named {
        request.name(kind, text).map_err(CommandError::NotErased)?;
    }
    if let Some(path) = &args.file {
        let failed = |source| CommandError::failed(format!("cannot read {}", path.display()), source);
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        if bytes > FILE_BYTES_MAX {
            let why = format!("{} has {bytes} bytes; at most {FILE_BYTES_MAX} are read", path.display());
            return Err(CommandError::Usage(why));
        }
        let text = std::fs::File::open(path).and_then(crate::text::read).map_err(failed)?;
        read_people(&text, &mut request)
            .map_err(|error| CommandError::Usage(format!("{}, {error}", path.display())))?;
    }
    match request.people.is_empty() {
        true => Err(CommandError::Usage("name somebody: --user-id, --email, --visitor-id or --file".to_owned())),
        false => Ok(request),
    }
}

fn talk(text: &str) {
    // When stderr is gone, the exit code has to say it all.
    io::stderr().write_all(text.as_bytes()).ok();
}

/// Asks on the terminal. The number has to be typed, so that a wrong name is noticed by what it would take along.
fn is_confirmed(rows: u64) -> bool {
    talk(&format!("This cannot be undone. To go on, type the number of rows ({rows}): "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && answer.trim() == rows.to_string()
}

/// A plan as JSON. It names people: it goes to whoever asked and nowhere else.
#[derive(Serialize)]
struct PlanJson<'a> {
    erasure_id: &'a str,
    resumes: bool,
    named: Vec<String>,
    led_to: Vec<String>,
    not_followed: Vec<(String, &'static str)>,
    /// Those of the named by whom nobody is known here.
    unknown: Vec<String>,
    leads_are_complete: bool,
    rounds: u32,
    rows: std::collections::BTreeMap<&'static str, std::collections::BTreeMap<&'static str, u64>>,
    archive_files: u64,
    archive_files_with_them: usize,
    archive_pages: u64,
    archive_records: u64,
    push_result_rows: u64,
    recordings: u64,
    hard_linked: Vec<String>,
}

impl<'a> PlanJson<'a> {
    fn of(plan: &'a Plan) -> Self {
        let identifiers = &plan.identifiers;
        let shown = |identifier: &crate::model::Identifier| format!("{} {}", identifier.kind.name(), identifier.value);
        PlanJson {
            erasure_id: &plan.erasure_id,
            resumes: plan.is_resumed,
            named: identifiers.named.iter().map(shown).collect(),
            led_to: identifiers.linked.iter().map(shown).collect(),
            not_followed: identifiers.not_followed.iter().map(|(lead, why)| (shown(lead), reason(*why))).collect(),
            unknown: plan.unknown.iter().map(shown).collect(),
            leads_are_complete: identifiers.is_complete,
            rounds: identifiers.rounds,
            rows: plan.warehouses.iter().map(|(name, found)| (*name, found.rows.clone())).collect(),
            archive_files: plan.archive.files,
            archive_files_with_them: plan.archive.found_in.len(),
            archive_pages: plan.archive.pages,
            archive_records: plan.archive.records,
            push_result_rows: plan.results.rows,
            recordings: plan.recordings.files,
            hard_linked: plan.hard_linked.iter().map(|file| file.path.display().to_string()).collect(),
        }
    }
}

fn reason(why: NotFollowed) -> &'static str {
    match why {
        NotFollowed::Shared => "other people, who were not named, have it too",
        NotFollowed::Strangers => "visitors without a user id have it too; name it, if all of them are the same person",
        NotFollowed::OtherUser => "it is another person's user id; name it too, if it is the same person",
        NotFollowed::TooMany => "more visitors or sessions have it than a person does",
    }
}

fn describe(plan: &Plan) -> String {
    let identifiers = &plan.identifiers;
    let mut text = match plan.is_resumed {
        true => format!("going on with the erasure {}\n", plan.erasure_id),
        false => "what would be erased\n".to_owned(),
    };
    let list_some = |text: &mut String, title: &str, lines: Vec<String>, listed_max: usize| {
        if lines.is_empty() {
            return;
        }
        text.push_str(&format!("  {title}\n"));
        let more = lines.len().saturating_sub(listed_max);
        for line in lines.into_iter().take(listed_max) {
            let line: String = line.chars().filter(|letter| !is_display_control(*letter)).collect();
            text.push_str(&format!("    {line}\n"));
        }
        if more > 0 {
            text.push_str(&format!("    and {more} more\n"));
        }
    };
    let list = |text: &mut String, title: &str, lines: Vec<String>| list_some(text, title, lines, LISTED_MAX);
    let shown = |identifier: &crate::model::Identifier| format!("{}: {}", identifier.kind, identifier.value);
    list_some(&mut text, "named", identifiers.named.iter().map(shown).collect(), usize::MAX);
    // Nobody is purged at the service who is not named here.
    let (purged, others): (Vec<_>, Vec<_>) =
        identifiers.linked.iter().partition(|lead| identifiers.visitors_of.contains_key(lead));
    let rounds = format!("led to, in {} rounds", identifiers.rounds);
    list_some(&mut text, &rounds, purged.into_iter().map(shown).collect(), usize::MAX);
    list(&mut text, "and with them", others.into_iter().map(shown).collect());
    let left = identifiers.not_followed.iter().map(|(lead, why)| format!("{}: {}", shown(lead), reason(*why)));
    list(&mut text, "NOT FOLLOWED", left.collect());
    list(&mut text, "NOBODY IS KNOWN HERE BY", plan.unknown.iter().map(shown).collect());
    if !identifiers.is_complete {
        text.push_str(
            "  the leads go on beyond the limit of rounds: run this again afterwards with what it names last\n",
        );
    }
    for (name, found) in &plan.warehouses {
        let rows = found.rows.iter().map(|(table, rows)| format!("{table}: {rows}")).collect();
        list(&mut text, &format!("rows in {name}: {}", found.total()), rows);
        if found.rows.is_empty() {
            text.push_str(&format!("  rows in {name}: none\n"));
        }
    }
    let archive = &plan.archive;
    text.push_str(&format!(
        "  archived records: {} in {} of {} files\n",
        archive.records,
        archive.found_in.len(),
        archive.files
    ));
    if plan.results.files > 0 {
        let ResultsFound { files, rows, .. } = plan.results;
        text.push_str(&format!("  rows in results of users push: {rows} in {files} files\n"));
    }
    if plan.recordings.sessions > 0 {
        let StoredRecordings { sessions, files, bytes } = plan.recordings;
        text.push_str(&format!("  recordings: {files} files of {sessions} sessions, {bytes} bytes\n"));
    }
    let linked = plan.hard_linked.iter().map(|file| file.path.display().to_string()).collect();
    list(&mut text, "FILES WITH OTHER NAMES (hard links), which keep what is removed from them here", linked);
    if plan.others_unfinished > 0 {
        text.push_str(&format!(
            "  {} other erasures were begun and not ended: run their commands again\n",
            plan.others_unfinished
        ));
    }
    text
}

fn summary(receipt: &Receipt, path: &str) -> String {
    let mut text = format!("erase {}: receipt {path}\n", receipt.outcome.replace('_', " "));
    let removed: u64 = receipt.removed.values().sum();
    text.push_str(&format!("  removed: {removed} rows and records\n"));
    if let Some(from) = &receipt.suppressed_from {
        text.push_str(&format!("  kept out from {from} on\n"));
    }
    for (name, place) in &receipt.verified.places {
        if place.left + place.unexplained > 0 {
            text.push_str(&format!("  LEFT in {name}: {}\n", place.left + place.unexplained));
        }
        for (column, rows) in &place.in_tables_of_others {
            text.push_str(&format!(
                "  STILL IN A TABLE OF YOUR OWN in {name}, {column}: {rows} rows; take them out there\n"
            ));
        }
        for (column, rows) in &place.mentions {
            text.push_str(&format!("  mentioned by others in {name}, {column}: {rows}\n"));
        }
    }
    if receipt.verified.mentions() > 0 {
        text.push_str("  what others wrote stays; --redact-mentions replaces the identifiers in it\n");
    }
    if receipt.service_refused_all {
        text.push_str("  THE SERVICE TOOK NONE OF THE NAMES (400 or 404): ask there whether it purged them; they are kept out here\n");
    }
    if receipt.redacted > 0 {
        text.push_str(&format!("  replaced in {} rows and pages\n", receipt.redacted));
    }
    if receipt.kept_under_other_names > 0 {
        text.push_str(&format!(
            "  LEFT UNDER OTHER NAMES: {} files had hard links, which keep their old bytes: remove those\n",
            receipt.kept_under_other_names
        ));
    }
    if receipt.not_followed > 0 {
        text.push_str(&format!(
            "  {} identifiers were not followed, since others have them too\n",
            receipt.not_followed
        ));
    }
    text
}
