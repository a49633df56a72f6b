//! How the service says when to come back. Never provoked: told is what was seen.

use crate::{
    model::{RetryAfterForm, behaviour_names},
    state::State,
};

use super::{super::PipelineError, lab::Lab, report::Measured};

pub(super) fn measure(lab: &mut Lab, state: &State) -> Result<(), PipelineError> {
    let name = behaviour_names::RETRY_AFTER;
    // Whatever the measures ran out of, this one asks for nothing.
    lab.found.retain(|measured| measured.name != name);
    let seen = lab.asker.source.retry_after_seen();
    let before = state.behaviour::<RetryAfterForm>(name)?;
    lab.note(match (seen, before) {
        (Some(form), _) => Measured::known(name, form, "a refusal during this check"),
        (None, Some((form, at_ms))) => {
            // It stays remembered as it was.
            let how = state.behaviour_evidence(name)?;
            let how = how.unwrap_or_else(|| "a refusal of an earlier run".to_owned());
            Measured { measured_ms: Some(at_ms), ..Measured::known(name, form, how) }
        }
        (None, None) => Measured::unknown(name, "not seen: the service never refused"),
    });
    Ok(())
}
