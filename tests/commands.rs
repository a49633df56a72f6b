//! The command line as scripts and people meet it: exit codes, JSON, what goes to which stream, and what never goes anywhere.

mod exits;
mod moved;
mod outputs;
mod queries;
mod secrets;
