//! The one test binary; a module a subject.

mod architecture;
mod gate;
mod harness;
mod kills;
mod sandbox;
mod source;
mod truth;
