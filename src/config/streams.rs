//! `[streams.NAME]`: which streams are enabled, and how each stream is read. `studies` is another name of `surveys`.

use std::{collections::BTreeMap, time::Duration};

use super::{
    StreamSettings, UsersSettings,
    defaults::{ASK_AGAIN_AFTER, REFRESH_AFTER, SETTLE_SECS},
    error::{ConfigError, invalid},
    file::{DriftTable, StreamTable},
};
use crate::{
    model::{
        DriftMode, DriftPolicy, DriftRules, Flag, FlagSet, Stream, SurveyStatus, parse_date, parse_duration,
        parse_month,
    },
    plan::{RescanRules, Tier},
};

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
        let stream: Stream = name.parse().map_err(unknown).map_err(|problem| invalid("[streams]", problem))?;
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
pub(super) fn users_settings(table: StreamTable, only: &[Stream]) -> Result<UsersSettings, ConfigError> {
    let label = |key: &str| format!("[streams.users] {key}");
    let keys_of_lists = [
        ("flags", table.flags.is_some()),
        ("page_rows", table.page_rows.is_some()),
        ("settle_secs", table.settle_secs.is_some()),
        ("rescan", table.rescan.is_some()),
        ("since", table.since.is_some()),
        ("statuses", table.statuses.is_some()),
    ];
    if let Some((key, _)) = keys_of_lists.iter().find(|(_, is_set)| *is_set) {
        return Err(invalid(label(key), "only lists have this key; users are read one by one and have refresh_after"));
    }
    let length = |key: &str, text: Option<&str>, default: &str| {
        parse_duration(text.unwrap_or(default)).map_err(|problem| invalid(label(key), problem))
    };
    Ok(UsersSettings {
        is_enabled: if only.is_empty() { table.enabled.unwrap_or(false) } else { only.contains(&Stream::Users) },
        refresh_after: length("refresh_after", table.refresh_after.as_deref(), REFRESH_AFTER)?,
        ask_again_after: length("ask_again_after", table.ask_again_after.as_deref(), ASK_AGAIN_AFTER)?,
    })
}

/// Returns the settings of a list from its table. Fails if a value is invalid, or if the table has a key that this
/// stream does not have.
fn stream_settings(stream: Stream, table: StreamTable) -> Result<StreamSettings, ConfigError> {
    let label = |key: &str| format!("[streams.{stream}] {key}");
    if table.refresh_after.is_some() || table.ask_again_after.is_some() {
        let key = if table.refresh_after.is_some() { "refresh_after" } else { "ask_again_after" };
        return Err(invalid(label(key), "only users have this key; lists have rescan"));
    }
    let default_flags = match stream {
        Stream::Responses => FlagSet::EMPTY.with(Flag::WithDeletedResponses),
        Stream::Surveys | Stream::Themes | Stream::Users => FlagSet::EMPTY,
    };
    let flags = match table.flags {
        None => default_flags,
        Some(names) if stream != Stream::Responses && !names.is_empty() => {
            return Err(invalid(label("flags"), "only responses have flags"));
        }
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
        Some(_) if stream != Stream::Surveys => {
            return Err(invalid(label("statuses"), "only surveys have a status"));
        }
        Some(names) => SurveyStatus::parse_all(&names)
            .map(|statuses| if statuses.len() < SurveyStatus::ALL.len() { statuses } else { Vec::new() })
            .map_err(|problem| invalid(label("statuses"), problem))?,
    };
    Ok(StreamSettings { stream, flags, page_rows, settle, rescan, since_ms, statuses })
}
