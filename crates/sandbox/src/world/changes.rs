//! Changes of the service's data, as they happen between two runs of a client. The same seed and data give the same
//! changes.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{
    super::random::Random,
    Row, RowKey, Status, VisitorSet, World, answers,
    generate::moment_between,
    surveys::{Kind, Question},
};

const HOUR_MS: i64 = 3_600_000;
/// Maximum random draws for each wanted row. The service may have too few suitable rows; after this many draws fewer
/// rows change.
const DRAWS_PER_TARGET_MAX: u64 = 200;

with_defaults! {
    /// How many changes of each kind to make.
    pub struct ChangeRequest {
        /// The seed of the random choices.
        seed: u64 = 1,
        /// Number of new answers. Their times are between the latest answers and the service's current time.
        new_answers: u64,
        /// Number of answers whose content changes. About half of these answers get a new `updatedAt`. Recordings get a
        /// new transcript.
        edits: u64,
        /// Number of answers that are soft-deleted. About half of these answers get a new `updatedAt`.
        soft_deletes: u64,
        /// Number of visitors who vanish with all their rows.
        vanish_visitors: u64,
        /// The half-open range of creation times whose responses vanish.
        vanish_window_ms: Option<(i64, i64)>,
        /// Number of answers that arrive now with a creation time in the past.
        late: u64,
        /// Maximum age of the start of a session of late answers, in hours; the minimum age is one hour. Default 48.
        late_hours: u32 = 48,
        /// Number of changes of a survey's status.
        status_changes: u64,
        /// Number of questions that get a new text. Existing answers keep the old text.
        question_edits: u64,
        /// Number of themes whose name and description change, on all rows of the theme.
        theme_edits: u64,
        /// Number of new themes on random answers, which may have themes already.
        new_themes: u64,
        /// Maximum age in milliseconds of the rows that are edited or soft-deleted. Each visitor who vanishes has at
        /// least one row of this age. `None` for any age.
        within_ms: Option<i64>,
        /// The new status of surveys. Surveys that are IN_PROGRESS change first. By default random surveys get a random
        /// other status.
        status_to: Option<Status>,
    }
}

/// A survey's change of status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusChange {
    /// The id of the survey.
    pub survey: i64,
    /// The status before the change.
    pub old_status: String,
    /// The status after the change.
    pub status: String,
}

/// The changes that were made. If the service has too few rows, fewer changes were made than requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSummary {
    /// New answers.
    pub new_answers: Vec<RowKey>,
    /// Edited answers with a new `updatedAt`.
    pub edits_bumped: Vec<RowKey>,
    /// Edited answers with their old `updatedAt`.
    pub edits_silent: Vec<RowKey>,
    /// Soft-deleted answers.
    pub soft_deletes: Vec<RowKey>,
    /// UUIDs of the visitors who vanished.
    pub vanished_visitors: Vec<String>,
    /// Answers that vanished, because their visitor vanished or because of their creation time.
    pub vanished: Vec<RowKey>,
    /// Late answers.
    pub late: Vec<RowKey>,
    /// Changes of status.
    pub status_changes: Vec<StatusChange>,
    /// Ids of the questions with a new text.
    pub question_edits: Vec<i64>,
    /// Ids of the themes with a new text.
    pub theme_edits: Vec<i64>,
    /// The answers that got a new theme.
    pub new_themes: Vec<RowKey>,
}

impl World {
    /// Applies the changes in the order of the summary's fields. `now_ms` is the service's time. Returns the changes
    /// that were made.
    pub(crate) fn apply(&mut self, request: &ChangeRequest, now_ms: i64) -> ChangeSummary {
        let mut random = Random::new(self.seed ^ request.seed, 4);
        let mut summary = ChangeSummary::default();
        let since_ms = self.answered_until_ms.min(now_ms);
        let last_serial = self.next_serial;
        summary.new_answers = self.add_answers(request.new_answers, since_ms, now_ms, now_ms, &mut random);
        self.answered_until_ms = since_ms.max(now_ms);
        // New answers are neither edited nor soft-deleted. An edited answer is not soft-deleted. Any answer may vanish.
        let mut touched: HashSet<u32> =
            self.responses.iter().map(|row| row.serial).filter(|serial| *serial > last_serial).collect();
        let targets =
            self.draw_rows(request.edits, request.within_ms, now_ms, &mut touched, &mut random, World::is_editable);
        self.edit_answers(&targets, now_ms, &mut random, &mut summary);
        let targets =
            self.draw_rows(request.soft_deletes, request.within_ms, now_ms, &mut touched, &mut random, |_, row| {
                // A planted row is sent as its exact text, which would not show the deletion.
                !row.is_planted() && row.deleted_ms.is_none()
            });
        summary.soft_deletes = self.soft_delete(&targets, now_ms, &mut random);
        self.vanish(request, now_ms, &mut random, &mut summary);
        let late_from_ms = now_ms - i64::from(request.late_hours) * HOUR_MS;
        summary.late = self.add_answers(request.late, late_from_ms, now_ms - HOUR_MS, now_ms, &mut random);
        self.change_surveys(request, now_ms, &mut random, &mut summary);
        self.change_themes(request, now_ms, &mut random, &mut summary);
        summary
    }

    /// Adds `count` answers of new sessions that begin between `from_ms` and `to_ms`. No creation time is after
    /// `now_ms`. Returns the keys of the answers.
    fn add_answers(&mut self, count: u64, from_ms: i64, to_ms: i64, now_ms: i64, random: &mut Random) -> Vec<RowKey> {
        let wanted = count as usize;
        let mut rows = Vec::new();
        while rows.len() < wanted {
            // Some sessions are of new visitors.
            if random.percent(30) {
                self.visitors += 1;
            }
            let begun_ms = moment_between(from_ms, to_ms.max(from_ms), random);
            self.answer_survey(begun_ms, now_ms, random, &mut rows);
            rows.truncate(wanted);
        }
        for row in &mut rows {
            row.created_ms = row.created_ms.min(now_ms);
            row.updated_ms = row.updated_ms.min(now_ms);
            row.serial = self.take_serial();
        }
        let keys = self.keys_of(&rows);
        self.responses.change(|all| all.extend(rows));
        keys
    }

    /// Returns the responses that were created at most `within_ms` before now; all for `None`.
    fn rows_within(&self, within_ms: Option<i64>, now_ms: i64) -> &[Row] {
        let is_older = |row: &Row| within_ms.is_some_and(|within| row.created_ms < now_ms - within);
        self.responses.get(self.responses.partition_point(is_older)..).unwrap_or_default()
    }

    /// Draws up to `count` responses that `fits` accepts and that are not in `touched`. Returns the serials of these
    /// responses, and adds them to `touched`. `within_ms` is the maximum age of a response.
    fn draw_rows(
        &self,
        count: u64,
        within_ms: Option<i64>,
        now_ms: i64,
        touched: &mut HashSet<u32>,
        random: &mut Random,
        fits: impl Fn(&World, &Row) -> bool,
    ) -> HashSet<u32> {
        let mut drawn = HashSet::new();
        draw_until(count, self.rows_within(within_ms, now_ms), random, |row| {
            fits(self, row) && touched.insert(row.serial) && drawn.insert(row.serial)
        });
        drawn
    }

    /// Returns true if an edit can change the answer of the row. Returns false for planted rows and deleted rows. Also
    /// returns false for a `TextUrlPrompt`, whose answer is always null, and if no survey has the question.
    fn is_editable(&self, row: &Row) -> bool {
        !row.is_planted() && row.deleted_ms.is_none() && self.editable_question(row).is_some()
    }

    /// Returns the question that a row answers; `None` if the survey of the row does not have the question.
    fn question_of(&self, row: &Row) -> Option<&Question> {
        let session = self.sessions.get(row.session as usize)?;
        let id = self.key_of(row).question;
        let questions = &self.survey_table.get(session.survey as usize)?.questions;
        questions.iter().find(|question| question.id.to_string() == id)
    }

    /// Returns the question that a row answers; `None` if the question has only one possible answer or no survey has
    /// it.
    pub(super) fn editable_question(&self, row: &Row) -> Option<&Question> {
        self.question_of(row).filter(|question| question.kind != Kind::TextUrlPrompt)
    }

    /// Gives the target rows another answer, and about half of these rows a new `updatedAt`. Adds the keys of the rows
    /// to the summary.
    fn edit_answers(&mut self, targets: &HashSet<u32>, now_ms: i64, random: &mut Random, summary: &mut ChangeSummary) {
        let mut edited = Vec::new();
        for (index, row) in self.responses.iter().enumerate().filter(|(_, row)| targets.contains(&row.serial)) {
            let Some(question) = self.question_of(row) else { continue };
            let answer = answers::another(question, &row.text, row.created_ms, random);
            let has_new_time = random.percent(50);
            edited.push((index, answer, has_new_time));
        }
        for (index, _, has_new_time) in &edited {
            let keys = if *has_new_time { &mut summary.edits_bumped } else { &mut summary.edits_silent };
            keys.extend(self.responses.get(*index).map(|row| self.key_of(row)));
        }
        self.responses.change(|rows| {
            for (index, answer, has_new_time) in edited {
                if let Some(row) = rows.get_mut(index) {
                    row.text = answer.into();
                    row.updated_ms = if has_new_time { now_ms } else { row.updated_ms };
                }
            }
        });
    }

    /// Soft-deletes the target rows, about half of these rows with a new `updatedAt`. Returns the keys of the rows.
    fn soft_delete(&mut self, targets: &HashSet<u32>, now_ms: i64, random: &mut Random) -> Vec<RowKey> {
        let is_target = |row: &Row| targets.contains(&row.serial);
        self.responses.change(|rows| {
            for row in rows.iter_mut().filter(|row| is_target(row) && row.deleted_ms.is_none()) {
                row.deleted_ms = Some(now_ms);
                if random.percent(50) {
                    row.updated_ms = now_ms;
                }
            }
        });
        self.keys_of(self.responses.iter().filter(|row| is_target(row)))
    }

    /// Removes visitors with all their rows, and the responses of a time range, as requested. Fewer visitors vanish
    /// than requested if too few have rows of the requested age.
    fn vanish(&mut self, request: &ChangeRequest, now_ms: i64, random: &mut Random, summary: &mut ChangeSummary) {
        let mut vanishing = VisitorSet::default();
        // A visitor is drawn by a random row, so every drawn visitor has at least one row.
        draw_until(request.vanish_visitors, self.rows_within(request.within_ms, now_ms), random, |row| {
            let visitor = self.visitor_of(row.session);
            let Some(visitor) = visitor.filter(|visitor| !vanishing.numbers.contains(&visitor.number)) else {
                return false;
            };
            summary.vanished_visitors.push(uuid::Uuid::from_u128(visitor.uuid).to_string());
            vanishing.add(visitor);
            true
        });
        if !vanishing.numbers.is_empty() {
            summary.vanished.extend(self.remove_visitors(&vanishing));
        }
        if let Some((start_ms, end_ms)) = request.vanish_window_ms {
            summary.vanished.extend(self.remove_window(start_ms..end_ms));
        }
    }

    fn change_surveys(
        &mut self,
        request: &ChangeRequest,
        now_ms: i64,
        random: &mut Random,
        summary: &mut ChangeSummary,
    ) {
        for _ in 0..request.status_changes {
            let in_progress = self.survey_table.iter().position(|survey| survey.status == Status::InProgress);
            let index = request.status_to.and(in_progress);
            let index = index.unwrap_or_else(|| random.index(self.survey_table.len()));
            let Some(survey) = self.survey_table.get_mut(index) else { break };
            let others: Vec<Status> = Status::ALL.into_iter().filter(|status| *status != survey.status).collect();
            let (old_status, status) = (survey.status, request.status_to.unwrap_or_else(|| *random.pick(&others)));
            survey.change_status(status, now_ms);
            let [old_status, status] = [old_status, status].map(|status| status.name().to_owned());
            summary.status_changes.push(StatusChange { survey: survey.id, old_status, status });
        }
        for nth in 0..request.question_edits {
            let index = random.index(self.survey_table.len());
            let Some(survey) = self.survey_table.get_mut(index) else { break };
            let question_index = random.index(survey.questions.len());
            let Some(question) = survey.questions.get_mut(question_index) else { continue };
            let text = format!("{} (edit {})", question.text, request.seed.wrapping_add(nth));
            question.reword(text, &mut self.wordings);
            survey.updated_ms = now_ms;
            summary.question_edits.push(question.id);
        }
    }

    /// Renames themes on all rows of the theme, and adds new themes to answers, as requested. An answer that already
    /// has the drawn theme gets no new one.
    fn change_themes(
        &mut self,
        request: &ChangeRequest,
        now_ms: i64,
        random: &mut Random,
        summary: &mut ChangeSummary,
    ) {
        let mut edited = HashSet::new();
        draw_until(request.theme_edits, &self.themes, random, |row| {
            let theme = self.theme_table.get_mut(row.entry as usize).filter(|_| !row.is_planted());
            let Some(theme) = theme.filter(|_| edited.insert(row.entry)) else { return false };
            theme.name.push_str(" (renamed)");
            theme.description.push_str(" Renamed.");
            summary.theme_edits.push(theme.id);
            true
        });
        self.themes.change(|rows| {
            rows.iter_mut()
                .filter(|row| !row.is_planted() && edited.contains(&row.entry))
                .for_each(|row| row.updated_ms = now_ms);
        });
        let fits = |world: &World, row: &Row| row.deleted_ms.is_none() && world.open_text(row).is_some();
        let targets = self.draw_rows(request.new_themes, None, now_ms, &mut HashSet::new(), random, fits);
        let answers: Vec<Row> = self.responses.iter().filter(|row| targets.contains(&row.serial)).cloned().collect();
        let existing: HashSet<_> = self.themes.iter().map(|row| (row.session, row.wording, row.entry)).collect();
        let rows: Vec<_> = (answers.iter())
            .filter_map(|row| self.theme_row(row, 1, now_ms, random))
            .filter(|row| !existing.contains(&(row.session, row.wording, row.entry)))
            .collect();
        summary.new_themes = self.keys_of(&rows);
        self.themes.change(|all| all.extend(rows));
    }
}

/// Draws rows until `take` has accepted `count` of them, or too many were drawn.
fn draw_until(count: u64, rows: &[Row], random: &mut Random, mut take: impl FnMut(&Row) -> bool) {
    let mut taken = 0;
    for _ in 0..count.saturating_mul(DRAWS_PER_TARGET_MAX) {
        if taken == count || rows.is_empty() {
            break;
        }
        taken += u64::from(take(random.pick(rows)));
    }
}
