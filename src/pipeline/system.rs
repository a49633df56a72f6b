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
    /// Where a test can stop the run.
    pub failpoints: Failpoints,
    /// Threads of each warehouse's engine; `None`: as many as there are cores.
    pub engine_threads: Option<u32>,
    /// Whether the warehouses are served in the other order, where one thread serves them all.
    pub last_warehouse_first: bool,
}
