//! What a run takes from the world around it: time, chance, the network, and who watches. The default is this machine;
//! the simulator (`tests/simulation`) puts others in their places.

use crate::{
    clock::Clock,
    model::{Chance, Steps},
    source::Transport,
};

/// The surroundings of a run. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// This machine's clock.
    pub clock: Clock,
    /// Where ids and jitter come from.
    pub chance: Chance,
    /// Who carries requests to the service.
    pub transport: Transport,
    /// Who watches the durable steps.
    pub steps: Steps,
    /// Threads of each warehouse's engine; `None`: as many as there are cores.
    pub engine_threads: Option<u32>,
    /// Whether the warehouses are served in the other order, where one thread serves them all.
    pub last_warehouse_first: bool,
}
