//! The one test binary; a module a subject.

mod architecture;
mod commands;
mod flatten;
mod gate;
mod harness;
mod kills;
mod nights;
mod sandbox;
mod source;
mod truth;
mod views;
mod warehouses;
