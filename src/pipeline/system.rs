//! What a run takes from outside: the clock, random numbers, the network and failpoints. The default is this machine;
//! the simulator (`tests/simulation`) replaces them.

use crate::{
    clock::Clock,
    model::{Failpoints, Rng},
    source::Transport,
};

/// The system of a run. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// This machine's clock.
    pub clock: Clock,
    /// The source of ids and jitter.
    pub rng: Rng,
    /// Sends requests to the service.
    pub transport: Transport,
    /// The failpoints at which a test can stop the run.
    pub failpoints: Failpoints,
    /// Threads of each warehouse's engine; `None` for one per processor.
    pub engine_threads: Option<u32>,
    /// True to use the warehouses in reverse order. Only visible with one thread.
    pub last_warehouse_first: bool,
}
