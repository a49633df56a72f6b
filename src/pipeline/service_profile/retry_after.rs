//! Measures the form of `Retry-After`. No 429 is provoked: the evidence is a 429 that a run received anyway.

use crate::{
    model::{RetryAfterForm, behaviour_names},
    state::State,
};

use super::{super::PipelineError, measure_context::MeasureContext, report::Measured};

/// Adds the form of `Retry-After` that this check received, or the stored form of an earlier run. The form stays
/// unknown if no run was rate limited.
pub(super) fn measure(context: &mut MeasureContext, state: &State) -> Result<(), PipelineError> {
    let name = behaviour_names::RETRY_AFTER;
    // An entry of a spent request budget is replaced, because this measure needs no request.
    context.measured.retain(|measured| measured.name != name);
    let received = context.requester.source.retry_after_form();
    let stored = state.behaviour::<RetryAfterForm>(name)?;
    context.add(match (received, stored) {
        (Some(form), _) => Measured::known(name, form, "a 429 during this check"),
        (None, Some((form, at_ms))) => {
            let how = state.behaviour_evidence(name)?;
            let how = how.unwrap_or_else(|| "a 429 in an earlier run".to_owned());
            // The time of the earlier measure stays.
            Measured { measured_ms: Some(at_ms), ..Measured::known(name, form, how) }
        }
        (None, None) => Measured::unknown(name, "no run was rate limited"),
    });
    Ok(())
}
