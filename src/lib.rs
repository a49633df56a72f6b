//! Keeps a warehouse in step with a study feedback service.
//!
//! The modules are listed in the order in which data passes through them. ARCHITECTURE.md describes them.
//!
//! ```text
//! plan ──► source ──► archive ──► flatten ──► load ──► state
//!  due       pages     exact       Arrow     one commit   checkpoint
//!  windows   by token   bytes      batches   per window   after it
//! ```

pub mod model;

pub mod clock;
mod files;
mod json;
pub mod page;
mod process_group;
pub mod redact;
pub mod text;
mod tls;
mod wording;

pub mod plan;

pub mod source;

pub mod upsert;

pub mod bucket;

pub mod archive;

pub mod schema;

pub mod flatten;

pub mod person;

pub mod load;

pub mod recordings;

pub mod state;

pub mod pipeline;

pub mod metrics;
pub mod notify;
pub mod otlp;
pub mod sync_status;

pub mod erase;
pub mod serve;

pub mod report;

pub mod config;
pub mod telemetry;

pub mod cli;
