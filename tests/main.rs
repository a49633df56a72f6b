//! The one test binary; a module a subject.

mod flatten;
