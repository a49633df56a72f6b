//! The one test binary; a module a subject.

mod architecture;
mod commands;
mod drift;
mod encodings;
mod erase;
mod flatten;
mod gate;
mod harness;
mod kills;
mod known_pages;
mod nights;
mod reading;
mod replay;
mod report;
mod sandbox;
mod serve;
mod simulation;
mod source;
mod ties;
mod traits;
mod truth;
mod users;
mod verify;
mod views;
mod warehouses;
mod world;
