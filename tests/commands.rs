//! The command line as scripts and people meet it:
//! exit codes, JSON, what goes to which stream, and what never goes anywhere.

mod asking;
mod configured;
mod exits;
mod moved;
mod outputs;
mod planning;
mod queries;
mod secrets;
mod typos;
