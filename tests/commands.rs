//! The command line as people and scripts use it: exit codes, JSON, stdout and stderr, secrets.

mod asking;
mod configured;
mod exits;
mod moved;
mod outputs;
mod planning;
mod queries;
mod query_types;
mod secrets;
mod signals;
mod typos;
