//! `studysync person`: exports everything that is stored about one person.

use std::path::PathBuf;

use clap::Args;
use uuid::fmt::Hyphenated;

use crate::{
    erase::{Erase, EraseError, EraseRequest, PersonExport},
    model::{IdentifierKind, is_display_control},
    pipeline::{System, flush_deliveries, until_stopped},
};

use super::{
    CommandError, Context,
    flags::{LocationArgs, PeopleArgs},
    signals::SignalHandler,
};

/// Maximum lines of linked identifiers in the text; `--json` prints all.
const LINES_SHOWN: usize = 40;

/// Exports everything that is stored about one person, for a request for access.
///
/// The command searches as `erase` does: for the named identifier and for identifiers linked to it, in every table,
/// history, reject, webhook, archived page, recording and `users push` result. It sends nothing to the service and
/// changes no row; waiting webhooks are written to the warehouses before.
///
/// With --out it writes a new folder that only you can read: each table as JSON and CSV, the records as the service
/// sent them, recordings, and `export.json` with identifiers and counts. Without --out it prints the counts. Your own
/// tables in the DuckDB file, and texts of other people that mention the person, are not exported. `erase` does not
/// find the folder: delete it when the request is answered.
///
/// ID may be your own id of the person, a mail address or a visitor's UUID. For a visitor's number use --visitor-id.
///
/// Exit codes: 0 done; 1 failed; 2 usage or configuration; 3 done, but something needs attention (nobody was found, or
/// identifiers were not followed because other people may have them); 5 another run holds the lease, or another program
/// the file; 130 interrupted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync person zoe@example.com
  studysync person user-000008 --out zoe")]
pub(super) struct PersonArgs {
    /// Your own id of the person, a mail address, or a visitor's UUID
    #[arg(value_name = "ID", help_heading = "Who", required_unless_present_any = ["user_ids", "emails", "visitor_ids"])]
    id: Option<String>,

    #[command(flatten)]
    people: PeopleArgs,

    /// New folder to write to
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Print one JSON object on stdout: what `export.json` has
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,
}

/// Searches for the person, exports, and prints the summary.
pub(super) async fn run(args: PersonArgs, context: Context) -> Result<u8, CommandError> {
    let request = request(&args).map_err(CommandError::NotExported)?;
    let settings = args.locations.settings(&context).build()?;
    let signals = SignalHandler::start();
    flush_deliveries(&settings, &System::default(), &signals.token(), true).await?;
    let (token, stop) = (signals.token(), signals.token());
    let out = args.out.clone();
    let exported = until_stopped(&token, move || {
        let mut erase = Erase::open(settings, request, stop)?;
        let plan = erase.plan()?;
        let has_found = plan.has_found();
        Ok::<_, EraseError>((erase.export(&plan, out.as_deref())?, has_found))
    });
    let (export, has_found) = exported.await?.map_err(CommandError::NotExported)?;
    drop(signals);
    context.printer.print_value(args.json, &export, |export| describe(export, has_found))?;
    let is_clear = has_found && export.not_followed.is_empty() && export.links_are_complete;
    Ok(if is_clear { 0 } else { 3 })
}

/// Returns the request with the named identifiers. The identifier without a flag is searched in every kind of field
/// that it fits.
fn request(args: &PersonArgs) -> Result<EraseRequest, EraseError> {
    let mut request = EraseRequest { local_only: true, only_exports: true, ..EraseRequest::default() };
    args.people.add_to(&mut request)?;
    if let Some(id) = &args.id {
        request.add_person(IdentifierKind::UserId, id)?;
        if id.contains('@') {
            // A text that is no mail address may still be a user id.
            request.add_person(IdentifierKind::Email, id).ok();
        }
        if id.parse::<Hyphenated>().is_ok() {
            request.add_person(IdentifierKind::VisitorUuid, id)?;
        }
    }
    Ok(request)
}

/// Returns the summary as text.
fn describe(export: &PersonExport, has_found: bool) -> String {
    let mut text = String::new();
    let mut list = |title: &str, lines: &[String]| {
        if lines.is_empty() {
            return;
        }
        text.push_str(&format!("{title}\n"));
        for line in lines.iter().take(LINES_SHOWN) {
            let line: String = line.chars().filter(|letter| !is_display_control(*letter)).collect();
            text.push_str(&format!("  {line}\n"));
        }
        if lines.len() > LINES_SHOWN {
            text.push_str(&format!("  and {} more: --json has all\n", lines.len() - LINES_SHOWN));
        }
    };
    list(if has_found { "named" } else { "NO MATCH HERE" }, &export.named);
    list("linked identifiers of the same person", &export.linked);
    list(
        "NOT FOLLOWED, because other people may have them; name them too if they are this person's",
        &export.not_followed,
    );
    let counts: Vec<String> = export.counts.iter().map(|(what, count)| format!("{what}: {count}")).collect();
    list("stored", &counts);
    match &export.folder {
        Some(folder) => text.push_str(&format!("exported to {}\n", folder.display())),
        None if has_found => text.push_str("--out FOLDER exports all of it as JSON and CSV\n"),
        None => {}
    }
    text
}
