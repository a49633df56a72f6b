//! The one test binary; a module a subject.

mod commands;
mod harness;
mod nights;
mod sandbox;
mod source;
mod truth;
