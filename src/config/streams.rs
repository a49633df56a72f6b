//! `[streams.NAME]`: which streams are enabled, and how each stream is read. `studies` is another name of `surveys`.

use std::{collections::BTreeMap, time::Duration};

use super::{
    declare::{Setting, SettingKey, Table as _, YEAR_SECS, default, example, table},
    error::{ConfigError, invalid},
    settings::{StreamSettings, UsersSettings},
};
use crate::{
    model::{
        DriftMode, DriftPolicy, DriftRules, Flag, FlagSet, Stream, SurveyStatus, parse_date, parse_duration,
        parse_month,
    },
    plan::{RescanRules, Tier},
};

const SETTLE_SECS: u64 = 600;
/// Age at which a stored user is read again.
const REFRESH_AFTER: &str = "30d";
/// Time after which a user that the service did not know is requested again.
const ASK_AGAIN_AFTER: &str = "7d";

table! {
    StreamTable, drift: DriftTable {
        "Whether the stream is read."
        enabled: Option<bool> => default(true), of &Stream::ALL;
        "Optional parts of a response. Without with_deleted_responses, deleted and purged answers look the same."
        flags: Option<Vec<String>> => default(["with_deleted_responses"]).set().below(
            r#"flags = ["with_deleted_responses", "with_urls", "with_meta", "with_custom_metadata", "with_snapshots"]"#
        ), of &[Stream::Responses];
        "Rows per page, at most 1000."
        page_rows: Option<u32> => default(1000), of &Stream::LISTS;
        "Answers younger than this are left to the next run."
        settle_secs: Option<u64> => default(SETTLE_SECS), in 0..=YEAR_SECS, of &Stream::LISTS;
        "How often windows are scanned again, by the age of the answers. Only a re-scan finds edits and deletions."
        rescan: Option<Vec<String>> => default(["3d every run", "30d daily", "365d weekly", "all monthly"]), of &Stream::LISTS;
        "Start of the first sync; without it, {FIRST_SYNC_DAYS} days back. `studysync backfill --from` pulls older answers."
        since: Option<String> => example("2026-01-01"), of &Stream::LISTS;
        "Read only surveys in these states; without it, all. Stored surveys in other states stay unchanged."
        statuses: Option<Vec<String>> => default(["NEW", "IN_PROGRESS", "PAUSED", "COMPLETED", "DRAFT", "ARCHIVED"])
            .below("[streams.surveys.drift] and [streams.themes.drift] take the same keys as above."), of &[Stream::Surveys];
        "Age at which a stored user is read again."
        refresh_after: Option<String> => default(REFRESH_AFTER), of &[Stream::Users];
        "Time after which a user that the service did not know (404) is requested again."
        ask_again_after: Option<String> => default(ASK_AGAIN_AFTER), of &[Stream::Users];
    }
}

table! {
    DriftTable {
        "The policy for fields that the contract does not know, and for values that their column cannot store:"
        r#"  "evolve"         store the value as JSON next to the columns; columns never change, and nothing is lost"#
        r#"  "freeze"         do not apply the window: the stream stops with exit code 1 until you set another policy"#
        r#"  "discard_row"    store the record's text in the table rejects; exit code 3 for new rejects"#
        r#"  "discard_value"  leave the value out; the archive has it"#
        "A changed policy applies to windows that are scanned from now on. `studysync replay` applies it to all windows."
        unknown_fields: Option<String> => default(DriftMode::default().name()), of &Stream::ALL;
        type_clashes: Option<String> => default(DriftMode::default().name()), of &Stream::ALL;
    }
}

/// Returns the key of `[streams.NAME]` as this stream has it; `None` if the stream does not have it. A key of another
/// table is returned unchanged.
pub(super) fn key_of_stream(key: SettingKey) -> Option<SettingKey> {
    let Some(stream) = stream_of(&key) else { return Some(key) };
    let is_known = key.streams.contains(&stream);
    is_known.then(|| match (stream, key.name) {
        (Stream::Surveys, "enabled") => {
            let help = &["[streams.studies] is another name of this table.", "Whether the stream is read."];
            SettingKey { help, ..key }
        }
        (Stream::Users, "enabled") => {
            let help = &[
                "Whether users are read. Off by default: it takes one request per user whom answers name (external_user_id).",
            ];
            SettingKey { help, shown: default(false), ..key }
        }
        _ => key,
    })
}

/// Returns true if the file that `init` writes shows the key. A key that streams share is shown for responses only,
/// except `enabled`.
pub(super) fn is_in_template(key: &SettingKey) -> bool {
    let is_elsewhere =
        stream_of(key).is_some_and(|stream| stream != Stream::Responses) && key.streams.contains(&Stream::Responses);
    key.name == "enabled" || !is_elsewhere
}

fn stream_of(key: &SettingKey) -> Option<Stream> {
    let name = key.table.strip_prefix("streams.")?;
    name.split('.').next()?.parse().ok()
}

/// The tables `[streams.NAME]` of the file, by stream.
pub(super) type StreamTables = BTreeMap<Stream, StreamTable>;

/// Returns the tables by stream instead of by name.
///
/// # Errors
/// An unknown name, or two names of one stream.
pub(super) fn by_stream(tables: BTreeMap<String, StreamTable>) -> Result<StreamTables, ConfigError> {
    let mut by_stream = StreamTables::new();
    for (name, table) in tables {
        let unknown =
            |_| format!("there is no stream '{name}'; there are responses, surveys (or studies), themes and users");
        let stream: Stream =
            name.parse().map_err(unknown).map_err(|problem| invalid(format!("[streams.{name}]"), problem))?;
        if by_stream.insert(stream, table).is_some() {
            let problem = "surveys and studies are the same stream: keep one of the two tables";
            return Err(invalid("[streams]", problem));
        }
    }
    Ok(by_stream)
}

/// Returns the drift policy of every stream, enabled or not.
pub(super) fn drift_policy(tables: &StreamTables) -> Result<DriftPolicy, ConfigError> {
    let mut policy = DriftPolicy::default();
    for stream in Stream::ALL {
        let Some(StreamTable { drift: DriftTable { unknown_fields, type_clashes }, .. }) = tables.get(&stream) else {
            continue;
        };
        let mode = |key: &str, text: &Option<String>| {
            let mode = text.as_deref().map(str::parse::<DriftMode>).transpose();
            mode.map(Option::unwrap_or_default)
                .map_err(|problem| invalid(format!("[streams.{stream}.drift] {key}"), problem))
        };
        let (unknown_fields, type_clashes) =
            (mode("unknown_fields", unknown_fields)?, mode("type_clashes", type_clashes)?);
        policy.set(stream, DriftRules { unknown_fields, type_clashes });
    }
    Ok(policy)
}

/// Returns the settings of the enabled lists, in the order in which a run reads them. `only` are the streams of the
/// command line. If `only` is not empty, exactly these streams are enabled.
pub(super) fn enabled(mut tables: StreamTables, only: &[Stream]) -> Result<Vec<StreamSettings>, ConfigError> {
    let mut enabled = Vec::new();
    for stream in Stream::LISTS {
        let table = tables.remove(&stream).unwrap_or_default();
        let is_enabled = if only.is_empty() { table.enabled.unwrap_or(true) } else { only.contains(&stream) };
        let settings = stream_settings(stream, table)?;
        if is_enabled {
            enabled.push(settings);
        }
    }
    Ok(enabled)
}

/// Returns the settings of the stream of users. `only` are the streams of the command line; see [`enabled`].
///
/// # Errors
/// A key that only lists have, or an invalid length of time.
pub(super) fn users_settings(mut table: StreamTable, only: &[Stream]) -> Result<UsersSettings, ConfigError> {
    let label = |key: &str| format!("[streams.users] {key}");
    check_keys(Stream::Users, &mut table)?;
    let length = |key: &str, text: Option<&str>, default: &str| {
        parse_duration(text.unwrap_or(default)).map_err(|problem| invalid(label(key), problem))
    };
    Ok(UsersSettings {
        is_enabled: if only.is_empty() { table.enabled.unwrap_or(false) } else { only.contains(&Stream::Users) },
        refresh_after: length("refresh_after", table.refresh_after.as_deref(), REFRESH_AFTER)?,
        ask_again_after: length("ask_again_after", table.ask_again_after.as_deref(), ASK_AGAIN_AFTER)?,
    })
}

fn check_keys(stream: Stream, table: &mut StreamTable) -> Result<(), ConfigError> {
    let mut settings = table.settings(&format!("streams.{stream}")).into_iter();
    let refused = settings.find(|setting| setting.value.is_set() && !setting.key.streams.contains(&stream));
    let Some(Setting { key, .. }) = refused else { return Ok(()) };
    let problem = match (stream, key.name) {
        (Stream::Users, _) => "only lists have this key; users are read one by one and have refresh_after",
        (_, "flags") => "only responses have flags",
        (_, "statuses") => "only surveys have a status",
        _ => "only users have this key; lists have rescan",
    };
    Err(invalid(key.label(), problem))
}

/// Returns the settings of a list from its table. Fails if a value is invalid, or if the table has a key that this
/// stream does not have.
fn stream_settings(stream: Stream, mut table: StreamTable) -> Result<StreamSettings, ConfigError> {
    let label = |key: &str| format!("[streams.{stream}] {key}");
    // Every list may have no flags.
    let flags = table.flags.take_if(|names| names.is_empty() || stream == Stream::Responses);
    check_keys(stream, &mut table)?;
    let default_flags = match stream {
        Stream::Responses => FlagSet::EMPTY.with(Flag::WithDeletedResponses),
        Stream::Surveys | Stream::Themes | Stream::Users => FlagSet::EMPTY,
    };
    let flags = match flags {
        None => default_flags,
        Some(names) => names
            .iter()
            .map(|name| {
                Flag::from_name(name).ok_or_else(|| {
                    let known: Vec<_> = Flag::ALL.into_iter().map(Flag::name).collect();
                    invalid(label("flags"), format!("there is no flag '{name}'; there are {}", known.join(", ")))
                })
            })
            .collect::<Result<FlagSet, _>>()?,
    };
    let page_rows_max = stream.page_rows_max().unwrap_or(1000);
    let page_rows = table.page_rows.unwrap_or(page_rows_max);
    if !(1..=page_rows_max).contains(&page_rows) {
        return Err(invalid(label("page_rows"), format!("{page_rows} is not between 1 and {page_rows_max}")));
    }
    let rescan = match table.rescan {
        None => RescanRules::default(),
        Some(texts) => texts
            .iter()
            .map(|text| text.parse::<Tier>())
            .collect::<Result<Vec<_>, _>>()
            .and_then(RescanRules::try_from)
            .map_err(|problem| invalid(label("rescan"), problem))?,
    };
    let since_ms =
        table.since.as_deref().map(|text| parse_month(text).map_or_else(|| parse_date(text), Ok)).transpose();
    let since_ms = since_ms.map_err(|problem| invalid(label("since"), problem))?;
    let settle = Duration::from_secs(table.settle_secs.unwrap_or(SETTLE_SECS));
    let statuses = match table.statuses {
        None => Vec::new(),
        Some(names) => SurveyStatus::parse_all(&names)
            .map(|statuses| if statuses.len() < SurveyStatus::ALL.len() { statuses } else { Vec::new() })
            .map_err(|problem| invalid(label("statuses"), problem))?,
    };
    Ok(StreamSettings { stream, flags, page_rows, settle, rescan, since_ms, statuses })
}
