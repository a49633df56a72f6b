//! The one test binary; a module a subject.

mod flatten;
mod sandbox;
mod source;
