//! Changes at the service while a client is away: deterministic from a seed and what the service holds.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{
    super::random::Random, NOT_DELETED, PLANTED, Record, ResponseRow, Status, World, answers, generate::moment_between,
    vanish::Named,
};

const HOUR_MS: i64 = 3_600_000;
/// How often a target is drawn before the rest of a kind is given up: the service may hold too few rows.
const DRAWS_PER_TARGET_MAX: u64 = 200;

/// How many changes of each kind to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChangeRequest {
    /// Seed of the choice.
    pub seed: u64,
    /// Answers given since the last ones, up to the service's now.
    pub new_answers: u64,
    /// Answers whose content changes; `updatedAt` is bumped for about half of them.
    /// VIDEOVOICE transcripts are refreshed.
    pub edits: u64,
    /// Answers that are soft-deleted now; `updatedAt` is bumped for about half of them.
    pub soft_deletes: u64,
    /// Visitors who vanish with all their rows.
    pub vanish_visitors: u64,
    /// Responses created in this half-open range vanish.
    pub vanish_window_ms: Option<(i64, i64)>,
    /// Answers that arrive now with a creation time in the past.
    pub late: u64,
    /// How far in the past late answers lie at most, in hours. Default 48.
    pub late_hours: u32,
    /// Surveys whose status changes.
    pub status_changes: u64,
    /// Questions that get a new text. Old answers keep the old one.
    pub question_edits: u64,
    /// Themes whose name and description change, on all their rows.
    pub theme_edits: u64,
    /// New theme rows on answers without regard to those they have.
    pub new_themes: u64,
    /// Only rows created at most this long before now are edited or deleted,
    /// and only visitors with such a row vanish; all by default.
    pub within_ms: Option<i64>,
    /// The status to which surveys change, from IN_PROGRESS where one is; any other by default.
    pub status_to: Option<Status>,
}

impl Default for ChangeRequest {
    fn default() -> Self {
        Self {
            seed: 1,
            new_answers: 0,
            edits: 0,
            soft_deletes: 0,
            vanish_visitors: 0,
            vanish_window_ms: None,
            late: 0,
            late_hours: 48,
            status_changes: 0,
            question_edits: 0,
            theme_edits: 0,
            new_themes: 0,
            within_ms: None,
            status_to: None,
        }
    }
}

/// The key of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowKey {
    /// `responseGroupUid`
    pub group: String,
    /// `questionId`, as it is spelled on the wire
    pub question: String,
}

/// A survey's change of status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusChange {
    /// The survey.
    pub survey: i64,
    /// Before.
    pub old_status: String,
    /// After.
    pub status: String,
}

/// What was changed. A kind may have fewer than asked for, when the service holds too few rows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSummary {
    /// New answers.
    pub new_answers: Vec<RowKey>,
    /// Edited answers whose `updatedAt` was bumped.
    pub edits_bumped: Vec<RowKey>,
    /// Edited answers whose `updatedAt` stayed.
    pub edits_silent: Vec<RowKey>,
    /// Soft-deleted answers.
    pub soft_deletes: Vec<RowKey>,
    /// UUIDs of the visitors who vanished.
    pub vanished_visitors: Vec<String>,
    /// Answers that vanished, with a visitor or with a range of time.
    pub vanished: Vec<RowKey>,
    /// Late answers.
    pub late: Vec<RowKey>,
    /// Changes of status.
    pub status_changes: Vec<StatusChange>,
    /// Ids of the questions with a new text.
    pub question_edits: Vec<i64>,
    /// Ids of the themes with a new text.
    pub theme_edits: Vec<i64>,
    /// The answers that new theme rows are on.
    pub new_themes: Vec<RowKey>,
}

impl World {
    /// Applies the changes, in the order of the summary's fields. `now_ms` is the service's time.
    pub(crate) fn apply(&mut self, request: &ChangeRequest, now_ms: i64) -> ChangeSummary {
        let mut random = Random::new(self.seed ^ request.seed, 4);
        let mut summary = ChangeSummary::default();
        let since_ms = self.answered_until_ms.min(now_ms);
        let last_serial = self.next_serial;
        summary.new_answers = self.add_answers(request.new_answers, since_ms, now_ms, now_ms, &mut random);
        self.answered_until_ms = since_ms.max(now_ms);
        // What is new now is not edited in the same breath: the summary's kinds stay apart.
        let mut touched: HashSet<u32> =
            self.responses.iter().map(Record::serial).filter(|serial| *serial > last_serial).collect();
        let targets =
            self.draw_rows(request.edits, request.within_ms, now_ms, &mut touched, &mut random, World::is_editable);
        self.edit_answers(&targets, now_ms, &mut random, &mut summary);
        let targets =
            self.draw_rows(request.soft_deletes, request.within_ms, now_ms, &mut touched, &mut random, |_, row| {
                // The text of a planted row is exact: it would go on saying that it is not deleted.
                row.session != PLANTED && !row.is_deleted()
            });
        summary.soft_deletes = self.soft_delete(&targets, now_ms, &mut random);
        self.vanish(request, now_ms, &mut random, &mut summary);
        let late_from_ms = now_ms - i64::from(request.late_hours) * HOUR_MS;
        summary.late = self.add_answers(request.late, late_from_ms, now_ms - HOUR_MS, now_ms, &mut random);
        self.change_surveys(request, now_ms, &mut random, &mut summary);
        self.change_themes(request, now_ms, &mut random, &mut summary);
        summary
    }

    /// New sessions, begun between two moments, until so many answers are there. None lies after now.
    fn add_answers(&mut self, count: u64, from_ms: i64, to_ms: i64, now_ms: i64, random: &mut Random) -> Vec<RowKey> {
        let wanted = count as usize;
        let mut rows = Vec::new();
        while rows.len() < wanted {
            // Some of those who answer are new.
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
        let keys = rows.iter().map(|row| self.key_of(row.session, row.wording)).collect();
        self.responses.change(|held| held.extend(rows));
        keys
    }

    /// Where the rows begin that were created so shortly before now.
    fn first_within(&self, within_ms: Option<i64>, now_ms: i64) -> usize {
        within_ms.map_or(0, |within| self.responses.partition_point(|row| row.created_ms < now_ms - within))
    }

    /// Serials of rows that fit and were not drawn before.
    fn draw_rows(
        &self,
        count: u64,
        within_ms: Option<i64>,
        now_ms: i64,
        touched: &mut HashSet<u32>,
        random: &mut Random,
        fits: impl Fn(&World, &ResponseRow) -> bool,
    ) -> HashSet<u32> {
        let first = self.first_within(within_ms, now_ms);
        let mut drawn = HashSet::new();
        for _ in 0..count.saturating_mul(DRAWS_PER_TARGET_MAX) {
            if drawn.len() as u64 == count || first == self.responses.len() {
                break;
            }
            let Some(row) = self.responses.get(first + random.index(self.responses.len() - first)) else { break };
            if fits(self, row) && touched.insert(row.serial) {
                drawn.insert(row.serial);
            }
        }
        drawn
    }

    /// Whether an edit can change the row: planted and deleted rows stay, and so do questions without an answer.
    fn is_editable(&self, row: &ResponseRow) -> bool {
        row.session != PLANTED && !row.is_deleted() && self.question_of(row).is_some_and(|(_, asks)| asks)
    }

    /// Where the row's question stands: survey and question index, and whether it has more than one possible answer.
    fn question_of(&self, row: &ResponseRow) -> Option<((usize, usize), bool)> {
        let survey_at = self.sessions.get(row.session as usize)?.survey as usize;
        let id = self.key_of(row.session, row.wording).question;
        let questions = &self.survey_table.get(survey_at)?.questions;
        let at = questions.iter().position(|question| question.id.to_string() == id)?;
        Some(((survey_at, at), questions.get(at)?.kind != super::kinds::Kind::TextUrlPrompt))
    }

    /// The question that a row answers, if it has more than one possible answer.
    pub(super) fn asked_in(&self, row: &ResponseRow) -> Option<&super::surveys::Question> {
        let ((survey, at), has_answers) = self.question_of(row)?;
        self.survey_table.get(survey)?.questions.get(at).filter(|_| has_answers)
    }

    fn edit_answers(&mut self, targets: &HashSet<u32>, now_ms: i64, random: &mut Random, summary: &mut ChangeSummary) {
        let mut edited = Vec::new();
        for (at, row) in self.responses.iter().enumerate().filter(|(_, row)| targets.contains(&row.serial)) {
            let question =
                self.question_of(row).and_then(|((survey, at), _)| self.survey_table.get(survey)?.questions.get(at));
            let Some(question) = question else { continue };
            let answer = answers::another(question, &row.answer, row.created_ms, random);
            edited.push((at, answer, random.percent(50)));
        }
        for (at, _, is_bumped) in &edited {
            let keys = if *is_bumped { &mut summary.edits_bumped } else { &mut summary.edits_silent };
            keys.extend(self.responses.get(*at).map(|row| self.key_of(row.session, row.wording)));
        }
        self.responses.change(|rows| {
            for (at, answer, is_bumped) in edited {
                if let Some(row) = rows.get_mut(at) {
                    row.answer = answer.into_boxed_str();
                    row.updated_ms = if is_bumped { now_ms } else { row.updated_ms };
                }
            }
        });
    }

    fn soft_delete(&mut self, targets: &HashSet<u32>, now_ms: i64, random: &mut Random) -> Vec<RowKey> {
        let is_target = |row: &ResponseRow| targets.contains(&row.serial);
        self.responses.change(|rows| {
            for row in rows.iter_mut().filter(|row| is_target(row) && row.deleted_ms == NOT_DELETED) {
                row.deleted_ms = now_ms;
                if random.percent(50) {
                    row.updated_ms = now_ms;
                }
            }
        });
        self.responses.iter().filter(|row| is_target(row)).map(|row| self.key_of(row.session, row.wording)).collect()
    }

    fn vanish(&mut self, request: &ChangeRequest, now_ms: i64, random: &mut Random, summary: &mut ChangeSummary) {
        let first = self.first_within(request.within_ms, now_ms);
        let mut named = Named::default();
        for _ in 0..request.vanish_visitors.saturating_mul(DRAWS_PER_TARGET_MAX) {
            if named.numbers.len() as u64 == request.vanish_visitors || first == self.responses.len() {
                break;
            }
            // Drawn from the rows, so that each has some.
            let row = self.responses.get(first + random.index(self.responses.len() - first));
            let Some(visitor) = row.and_then(|row| self.visitor_of(row.session)) else { continue };
            if !named.numbers.contains(&visitor.number) {
                summary.vanished_visitors.push(uuid::Uuid::from_u128(visitor.uuid).to_string());
                named.add(visitor);
            }
        }
        if !named.numbers.is_empty() {
            summary.vanished.extend(self.remove_visitors(&named));
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
            let under_way = self.survey_table.iter().position(|survey| survey.status == Status::InProgress);
            let at = request.status_to.and(under_way);
            let at = at.unwrap_or_else(|| random.index(self.survey_table.len()));
            let Some(survey) = self.survey_table.get_mut(at) else { break };
            let others: Vec<Status> = Status::ALL.into_iter().filter(|status| *status != survey.status).collect();
            let (old_status, status) = (survey.status, request.status_to.unwrap_or_else(|| *random.pick(&others)));
            survey.status = status;
            survey.updated_ms = now_ms;
            let is_over = matches!(status, Status::Completed | Status::Archived);
            survey.completed_ms = is_over.then_some(now_ms);
            let is_launched = !matches!(status, Status::New | Status::Draft);
            survey.launched_ms = survey.launched_ms.or(is_launched.then_some(now_ms));
            self.surveys.change(|rows| {
                rows.iter_mut().filter(|row| row.survey as usize == at).for_each(|row| row.status = Some(status));
            });
            let [old_status, status] = [old_status, status].map(|status| status.name().to_owned());
            summary.status_changes.push(StatusChange { survey: survey.id, old_status, status });
        }
        for nth in 0..request.question_edits {
            let at = random.index(self.survey_table.len());
            let Some(survey) = self.survey_table.get_mut(at) else { break };
            let question_at = random.index(survey.questions.len());
            let Some(question) = survey.questions.get_mut(question_at) else { continue };
            let text = format!("{} (edit {})", question.text, request.seed.wrapping_add(nth));
            question.reword(text, &mut self.wordings);
            survey.updated_ms = now_ms;
            summary.question_edits.push(question.id);
        }
    }

    fn change_themes(
        &mut self,
        request: &ChangeRequest,
        now_ms: i64,
        random: &mut Random,
        summary: &mut ChangeSummary,
    ) {
        let mut edited = HashSet::new();
        for _ in 0..request.theme_edits.saturating_mul(DRAWS_PER_TARGET_MAX) {
            if edited.len() as u64 == request.theme_edits || self.themes.is_empty() {
                break;
            }
            let row = self.themes.get(random.index(self.themes.len())).filter(|row| row.session != PLANTED);
            let Some(at) = row.map(|row| row.theme) else { continue };
            let Some(theme) = self.theme_table.get_mut(at as usize).filter(|_| edited.insert(at)) else { continue };
            theme.name.push_str(" (renamed)");
            theme.description.push_str(" Renamed.");
            summary.theme_edits.push(theme.id);
        }
        self.themes.change(|rows| {
            rows.iter_mut()
                .filter(|row| row.session != PLANTED && edited.contains(&row.theme))
                .for_each(|row| row.updated_ms = now_ms);
        });
        let fits = |world: &World, row: &ResponseRow| !row.is_deleted() && world.open_text(row).is_some();
        let targets = self.draw_rows(request.new_themes, None, now_ms, &mut HashSet::new(), random, fits);
        let answers: Vec<ResponseRow> =
            self.responses.iter().filter(|row| targets.contains(&row.serial)).cloned().collect();
        let held: HashSet<_> = self.themes.iter().map(|row| (row.session, row.wording, row.theme)).collect();
        let rows: Vec<_> = (answers.iter())
            .filter_map(|row| self.theme_row(row, 1, now_ms, random))
            .filter(|row| !held.contains(&(row.session, row.wording, row.theme)))
            .collect();
        summary.new_themes = rows.iter().map(|row| self.key_of(row.session, row.wording)).collect();
        self.themes.change(|held| held.extend(rows));
    }
}
