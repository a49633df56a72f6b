//! One file a command.

pub mod sandbox;
