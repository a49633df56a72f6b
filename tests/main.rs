//! The one test binary; a module a subject.

mod harness;
mod nights;
mod sandbox;
mod source;
mod truth;
