//! The one test binary: one module for each subject. Read `tour` first.

// The modules below are sorted by name; this one stands first because it explains the others.
mod tour;

mod analysts;
mod architecture;
mod book;
mod bucket;
mod commands;
mod contract;
mod contributing;
mod drift;
mod earlier_version;
mod encodings;
mod erase;
mod flatten;
mod gate;
mod harness;
mod keys;
mod kills;
mod lakes;
mod nights;
mod places;
mod reading;
mod recordings;
mod replay;
mod report;
mod rescans;
mod sandbox;
mod serve;
mod service_profile;
mod simulation;
mod source;
mod spellings;
mod ties;
mod truth;
mod users;
mod verify;
mod views;
mod warehouses;
mod watching;
mod windows;
mod workers;
mod world;
