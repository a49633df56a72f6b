//! The one test binary; a module a subject.

mod architecture;
mod flatten;
mod gate;
mod harness;
mod kills;
mod sandbox;
mod source;
