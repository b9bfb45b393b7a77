//! Worlds whose devices are of other kinds: with transfers that wait, or with the host's memory.

use synced_mem::Host;

use super::op::DEVICES;
use super::world::World;

impl World {
    /// With the devices of the lower bits, whose transfers of host bytes wait for the device. Those of the upper bits
    /// are pending afterwards.
    pub(crate) fn staged(self, devices: usize) -> Self {
        let staged = self.devices.iter().enumerate().filter(|(index, _)| devices >> index & 1 == 1);
        staged.for_each(|(index, device)| {
            let is_pending = devices >> (DEVICES + index) & 1 == 1;
            device.stage_transfers(if is_pending { Host::Pending } else { Host::Done });
        });
        self
    }

    /// With devices that share the host's memory, a bit for each.
    pub(crate) fn sharing(mut self, devices: usize) -> Self {
        let sharing = self.devices.iter().enumerate().filter(|(index, _)| devices >> index & 1 == 1);
        sharing.for_each(|(_, device)| device.share_host());
        for memory in 0..self.memories.len() {
            if let Some(mut model) = self.memory(memory).model() {
                model.sharing = devices;
            }
        }
        self.sharing = devices;
        self
    }
}
