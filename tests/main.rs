//! The one test binary; a module a subject.

mod harness;
mod sandbox;
mod source;
mod truth;
