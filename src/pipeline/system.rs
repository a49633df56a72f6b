//! The inputs of a run from outside: the clock, random numbers, the network and failpoints. The default is this
//! machine; the simulator (`tests/simulation`) replaces all of them.

use crate::{
    clock::Clock,
    model::{Failpoints, Rng},
    source::Transport,
};

/// The inputs of a run from outside. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// This machine's clock.
    pub clock: Clock,
    /// The random numbers for ids and jitter.
    pub rng: Rng,
    /// Sends requests to the service.
    pub transport: Transport,
    /// The failpoints at which a test can stop the run.
    pub failpoints: Failpoints,
    /// Number of threads of DuckDB's engine. `None` for one thread per processor.
    pub engine_threads: Option<u32>,
    /// True to use the warehouses in reverse order. The order only matters in a runtime with one thread.
    pub last_warehouse_first: bool,
}
