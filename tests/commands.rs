//! Tests of the command line: exit codes, JSON, stdout and stderr, secrets.

mod asking;
mod configured;
mod exits;
mod first_screen;
mod found;
mod moved;
mod outputs;
mod planning;
mod progress;
mod queries;
mod query_types;
mod secrets;
mod signals;
mod typos;
mod vocabulary;
mod widths;
