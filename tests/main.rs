//! The one test binary; a module a subject.

mod architecture;
mod sandbox;
mod source;
