//! The one test binary; a module a subject.

mod architecture;
mod commands;
mod flatten;
mod gate;
mod harness;
mod kills;
mod nights;
mod sandbox;
mod simulation;
mod source;
mod ties;
mod traits;
mod truth;
mod warehouses;
mod world;
