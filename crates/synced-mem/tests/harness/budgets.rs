//! The budgets of a world.

use synced_mem::{Budget, Device, Location};

use super::world::World;

impl World {
    /// With a budget for each place but the origin: an eighth of the shared bytes, but room for the longest memory.
    pub(crate) fn on_a_budget(mut self) -> Self {
        let lens: Vec<_> = (0..self.memories.len()).map(|memory| self.memory(memory).memory.len()).collect();
        let bytes = (lens.iter().sum::<usize>() / 8).max(lens.into_iter().max().unwrap_or(0));
        let places =
            [Location::Host].into_iter().chain(self.devices.iter().map(|device| Location::Device(device.id())));
        self.budgets = places.map(|place| Budget::new(place, bytes)).collect();
        for memory in 0..self.memories.len() {
            self.budgets.iter().for_each(|budget| budget.add(&self.memory(memory).memory));
        }
        self
    }
}
