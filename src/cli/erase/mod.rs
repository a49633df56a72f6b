//! `studysync erase`: erases people, at the service and in all stored data.

mod plan;

use std::{
    io::{self, BufRead, IsTerminal},
    path::PathBuf,
};

use clap::Args;

use crate::{
    erase::{DELAY_SECONDS_MAX, Erase, EraseError, EraseRequest, read_people},
    pipeline::{System, flush_deliveries, until_stopped},
};

use super::{
    CommandError, Context,
    flags::{LimitArgs, LocationArgs, PeopleArgs},
    printer::write_stderr,
    signals::SignalHandler,
};
use plan::PlanJson;

/// The largest file of people that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Erases people at the service and in all stored data.
///
/// The command first prints a plan: which people, and their rows in tables, pages and files. It searches for the named
/// identifiers and for identifiers linked to them (a user id is linked to its visitors, sessions and mail addresses).
/// Identifiers that other people share, or that link visitors without a user id, are reported and not followed. Unicode
/// forms of one name match each other, and so do the Unicode and ASCII forms of a mail domain.
///
/// After confirmation, it asks the service to delete these people, at most 100 per request. It then removes them from
/// every table, history, Parquet file, archived page, recording, reject, `users push` result and from the checkpoints.
/// The DuckDB file is rewritten, so that no deleted byte is left. Finally it searches every file for every identifier.
/// The receipt says what was searched, found and removed, without identifiers: it is a file next to the state file, and
/// a row of the table `erasures`.
///
/// The service continues to send these people until its delay (ten days by default) is over. A list of keyed hashes,
/// the suppression list, keeps them out of scans, replays and webhooks until two days after the delay, and until
/// complete scans no longer return any of them. Back up the folder of this list (FILE.erasures next to the state file).
/// Restored backups of the archive are filtered as well. After restoring a warehouse, run the same command again.
///
/// Texts that other people wrote about them stay, and are counted by table (exit code 3). With --redact-mentions the
/// identifiers in these texts are replaced. The service still has the texts: a scan that finds them changed stores them
/// again. A visitor's number, and an id of digits alone, is removed from columns and fields but not searched for in
/// texts, where any number could match. Log lines have no identifiers. The plan has identifiers and goes to stderr, or
/// with --dry-run to stdout: check where your scheduler stores them.
///
/// Your own tables, views and other objects in the DuckDB file stay. Your tables are searched, and matches are reported
/// (exit code 3). An object that prevents rewriting the file is reported before anything changes (exit code 2).
///
/// The same command resumes an erasure that was interrupted. After a finished erasure it finds nothing.
///
/// A person who signs up again while suppressed is left out, too. With --end ID the command erases nobody, and ends the
/// suppression: scans, replays and webhooks store records of these people again, also old records that the service
/// still sends. The receipt says when. ID is any identifier of the person, or the id of the erasure for all its people.
///
/// Exit codes: 0 done; 1 failed, the same command resumes; 2 usage or configuration; 3 done, but something needs
/// attention (mentions by others, identifiers that were not followed; with --dry-run also identifiers without a match
/// here); 4 key refused; 5 another run holds the lease, or another program the file; 6 stopped early at a deadline, a
/// budget or a rate limit, the same command resumes; 130 interrupted or not confirmed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync erase --email zoe@example.com --dry-run
  studysync erase --file people.txt --yes --json")]
pub(super) struct EraseArgs {
    #[command(flatten)]
    people: PeopleArgs,

    /// A file of people, one per line: `user-id ID`, `email ADDRESS` or `visitor-id ID`
    #[arg(long, value_name = "PATH", help_heading = "Who")]
    file: Option<PathBuf>,

    /// Erase nobody, and end the suppression of people who are back: an identifier of the person, or the erasure's id
    #[arg(
        long,
        value_name = "ID",
        num_args = 1..,
        help_heading = "Who",
        conflicts_with_all = ["user_ids", "emails", "visitor_ids", "file", "delay_seconds", "local_only", "redact_mentions"],
    )]
    end: Vec<String>,

    /// Delay before the service purges [default: the service's default, ten days]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=DELAY_SECONDS_MAX))]
    delay_seconds: Option<u64>,

    /// Send no deletion to the service, because the people are purged there in another way
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
    locations: LocationArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

/// Plans the erasure, asks for confirmation, and erases. With --dry-run only prints the plan. Returns 130 if the user
/// does not confirm. With --end, ends a suppression instead.
pub(super) async fn run(args: EraseArgs, context: Context) -> Result<u8, CommandError> {
    if !args.end.is_empty() {
        let settings = args.locations.settings(&context).limits(&args.limits).build()?;
        return plan::end_erasures(settings, args.end, args.dry_run, args.json, context).await;
    }
    let request = request(&args)?;
    if !args.dry_run && !args.yes && !io::stdin().is_terminal() {
        let problem = "there is no terminal to confirm the erasure: check the plan with --dry-run, then add --yes";
        return Err(CommandError::Usage(problem.to_owned()));
    }
    let settings = args.locations.settings(&context).limits(&args.limits).build()?;
    let signals = SignalHandler::start();
    if !args.dry_run {
        // Writes the deliveries of the inbox to the warehouses, so that the erasure searches them too.
        flush_deliveries(&settings, &System::default(), &signals.token(), true).await?;
    }
    // A dry run needs neither the service nor a key.
    let request = EraseRequest { local_only: request.local_only || args.dry_run, ..request };
    let (token, stop) = (signals.token(), signals.token());
    let planned = until_stopped(&token, move || {
        let mut erase = Erase::open(settings, request, stop)?;
        let plan = erase.plan()?;
        Ok::<_, EraseError>((erase, plan))
    });
    let (erase, plan) = planned.await?.map_err(CommandError::NotErased)?;
    if args.dry_run {
        context.printer.print_value(args.json, &PlanJson::of(&plan), |_| plan::describe_plan(&plan))?;
        let identifiers = &plan.identifiers;
        let is_clear = identifiers.not_followed.is_empty() && identifiers.is_complete && plan.unknown.is_empty();
        return Ok(if is_clear { 0 } else { 3 });
    }
    context.message(&plan::describe_plan(&plan));
    if !args.yes && !is_confirmed(plan.rows()) {
        write_stderr("nothing was removed\n");
        return Ok(130);
    }
    let outcome = erase.apply(plan).await;
    drop(signals);
    let (receipt, path) = outcome.map_err(CommandError::Erase)?;
    context.report(args.json, &receipt, |receipt| plan::describe_receipt(receipt, &path))?;
    Ok(receipt.exit_code)
}

/// Returns the request that the flags and the file of people describe. Fails if no person is named, or if an identifier
/// is invalid.
fn request(args: &EraseArgs) -> Result<EraseRequest, CommandError> {
    let mut request = EraseRequest {
        delay_seconds: args.delay_seconds,
        local_only: args.local_only,
        redact_mentions: args.redact_mentions,
        ..EraseRequest::default()
    };
    args.people.add_to(&mut request).map_err(CommandError::NotErased)?;
    if let Some(path) = &args.file {
        let failed = CommandError::failed(format!("cannot read {}", path.display()));
        let bytes = std::fs::metadata(path).map_err(&failed)?.len();
        if bytes > FILE_BYTES_MAX {
            let problem = format!("{} has {bytes} bytes; at most {FILE_BYTES_MAX} are read", path.display());
            return Err(CommandError::Usage(problem));
        }
        let text = std::fs::File::open(path).and_then(crate::text::read).map_err(failed)?;
        read_people(&text, &mut request)
            .map_err(|error| CommandError::Usage(format!("{}, {error}", path.display())))?;
    }
    match request.people.is_empty() {
        true => Err(CommandError::Usage(
            "name a person: --user-id, --email, --visitor-id or --file; or end a suppression with --end".to_owned(),
        )),
        false => Ok(request),
    }
}

/// Asks for confirmation on the terminal. The user has to type the number of rows, and so notices a wrong identifier
/// that would erase too many rows. Returns false for any other input.
fn is_confirmed(rows: u64) -> bool {
    write_stderr(&format!("This cannot be undone. To continue, type the number of rows ({rows}): "));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).is_ok() && answer.trim() == rows.to_string()
}
