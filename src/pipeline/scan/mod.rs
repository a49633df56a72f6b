//! One scan: [`pull`] writes the pages of its window to a spool, and [`commit`] applies them to every warehouse.

pub mod commit;
pub mod context;
mod list_end;
pub mod page_buffer;
pub mod pull;
pub mod shared_destination;
pub mod states;
pub mod tie_probes;
pub mod user_pages;
