//! Writes records as JSON directly into the buffer of a page.

use super::{
    super::json_text::{Id, Time, push, push_member},
    ListName, Row, World,
};

/// The optional parts of a response record, by the flags of the request. `deleted` also lists soft-deleted responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Flags {
    pub(crate) snapshots: bool,
    pub(crate) urls: bool,
    pub(crate) meta: bool,
    pub(crate) custom_metadata: bool,
    pub(crate) deleted: bool,
}

impl Flags {
    pub(crate) const ALL: Flags =
        Flags { snapshots: true, urls: true, meta: true, custom_metadata: true, deleted: true };

    /// Returns the approximate size in bytes of a record with these parts, to reserve memory.
    pub(crate) fn record_bytes_hint(self) -> usize {
        let optional =
            [(self.snapshots, 560), (self.urls, 80), (self.meta, 420), (self.custom_metadata, 80), (self.deleted, 20)];
        520 + optional.iter().filter(|(is_on, _)| *is_on).map(|(_, bytes)| bytes).sum::<usize>()
    }
}

impl World {
    /// Appends the record of a row of the list. Of a response, only the requested parts are written. A planted record
    /// is appended as it is.
    pub(crate) fn write(&self, list: ListName, out: &mut Vec<u8>, row: &Row, flags: Flags) {
        match list {
            _ if row.is_planted() => out.extend_from_slice(row.text.as_bytes()),
            ListName::Responses => self.write_response(out, row, flags),
            ListName::Themes => self.write_theme(out, row),
            ListName::Surveys => match self.survey_table.get(row.entry as usize) {
                Some(survey) => survey.write(out),
                // A generated row has a survey in the table.
                None => out.extend_from_slice(b"{}"),
            },
        }
    }

    fn write_response(&self, out: &mut Vec<u8>, row: &Row, flags: Flags) {
        let time = |at_ms: i64| Time { at_ms, style: row.style };
        out.extend_from_slice(b"{\"createdAt\":");
        push(out, &time(row.created_ms));
        push_member(out, "updatedAt", &time(row.updated_ms));
        if flags.deleted {
            push_member(out, "deletedAt", &row.deleted_ms.map(time));
        }
        self.write_question(out, row.wording);
        out.push(b',');
        self.write_answer(out, row);
        self.write_session(out, row);
        if let Some(visitor) = self.visitor_of(row.session) {
            visitor.write_identity(out);
        }
        if flags.urls || flags.meta || flags.custom_metadata || flags.snapshots {
            self.write_optional(out, row, flags);
        }
        out.push(b'}');
    }

    /// Appends the answer member, with the additional text.
    fn write_answer(&self, out: &mut Vec<u8>, row: &Row) {
        let text_answer = row.text.strip_prefix(r#""response":""#).and_then(|rest| rest.strip_suffix('"'));
        // The serial makes each text different.
        let more = || self.more_text.split_at_checked(row.serial as usize % 64).map_or("", |(_, text)| text);
        match text_answer {
            _ if self.more_text.is_empty() => out.extend_from_slice(row.text.as_bytes()),
            Some(text) if !text.is_empty() => {
                out.extend_from_slice(format!(r#""response":"{text} "#).as_bytes());
                out.extend_from_slice(more().as_bytes());
                out.push(b'"');
            }
            _ => {
                out.extend_from_slice(row.text.as_bytes());
                out.extend_from_slice(b",\"context\":\"");
                out.extend_from_slice(more().as_bytes());
                out.push(b'"');
            }
        }
    }

    /// Appends the question members of a record, with a comma before them.
    fn write_question(&self, out: &mut Vec<u8>, wording: u32) {
        out.push(b',');
        if let Some(wording) = self.wordings.get(wording as usize) {
            out.extend_from_slice(wording.as_bytes());
        }
    }

    /// Appends the members of a record that its session decides.
    fn write_session(&self, out: &mut Vec<u8>, row: &Row) {
        push_member(out, "responseGroupUid", &Id(self.group_of(row.session)));
        push_member(out, "surveyId", &row.survey_id);
    }

    fn write_optional(&self, out: &mut Vec<u8>, row: &Row, flags: Flags) {
        let group = self.group_of(row.session);
        let Some(visitor) = self.visitor_of(row.session) else { return };
        let Some(session) = self.sessions.get(row.session as usize) else { return };
        let Some(survey) = self.survey_table.get(session.survey as usize) else { return };
        let page = survey.pages.get(group as usize % survey.pages.len().max(1)).map_or("\"\"", String::as_str);
        if flags.urls {
            out.extend_from_slice(b",\"url\":");
            out.extend_from_slice(page.as_bytes());
        }
        if flags.meta
            && let Some(device) = self.devices.get(visitor.device() % self.devices.len().max(1))
        {
            out.extend_from_slice(b",\"meta\":");
            device.write_meta(out, page);
        }
        if flags.custom_metadata && survey.is_link {
            out.extend_from_slice(b",\"customMetadata\":{\"campaign\":");
            push(out, ["spring", "summer", "partners"][group as usize % 3]);
            push_member(out, "batch", &(group >> 40 & 31));
            out.push(b'}');
        }
        if flags.snapshots {
            out.extend_from_slice(b",\"visitorSnapshot\":");
            // In rough data, the snapshots of some answers of a session have other properties than the rest of the
            // session.
            let differs = self.rough.is_some() && row.serial.is_multiple_of(32);
            visitor.write_snapshot(out, group, row.created_ms, u32::from(differs));
        }
    }

    fn write_theme(&self, out: &mut Vec<u8>, row: &Row) {
        let Some(theme) = self.theme_table.get(row.entry as usize) else { return };
        out.extend_from_slice(b"{\"id\":");
        push(out, &theme.id);
        push_member(out, "createdAt", &Time::from(row.created_ms));
        push_member(out, "updatedAt", &Time::from(row.updated_ms));
        self.write_question(out, row.wording);
        out.extend_from_slice(b",\"response\":");
        out.extend_from_slice(row.text.as_bytes());
        self.write_session(out, row);
        push_member(out, "theme", &theme.name);
        push_member(out, "themeDescription", &theme.description);
        if let Some(visitor) = self.visitor_of(row.session) {
            push_member(out, "visitorId", &visitor.number);
        }
        out.push(b'}');
    }
}
