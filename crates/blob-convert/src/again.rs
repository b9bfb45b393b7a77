//! Opens a written output again, before the rename to the final name, and compares names, dtypes, shapes and offsets
//! with the plan. In a file restored from a receipt's frame, the checksums are compared too, because everything else
//! around the values comes from that frame.

use std::path::Path;

use blob_io::layout::{Layout, Reopened, Sharded, Wanted, check_written};
use blob_io::{Checkpoint, Complete, Error, Format, OpenOptions};

use crate::plan::Plan;
use crate::planned::Planned;
use crate::shards::{Shard, Shards};
use crate::template::Template;
use crate::watch::Watch;

impl Plan<'_> {
    /// Checks a file; returns whether the content shows the format.
    pub(crate) fn check_file(&self, written: &Complete, layout: &Layout, watch: &dyn Watch) -> Result<bool, Error> {
        let (is_copy, limits) = (self.is_copy(), self.checkpoint.limits());
        let wanted = self.tensors.iter().map(|tensor| {
            let offset = match tensor.slot {
                Some(slot) => Some(layout.offsets()[slot]),
                None => self.checkpoint.entries()[tensor.entry].offset().filter(|_| is_copy),
            };
            Wanted { spec: &tensor.spec, offset }
        });
        if !matches!(self.base, Template::Frame(_)) {
            let may_hold_more = matches!(self.base, Template::File(_));
            return Ok(written.check(self.to, wanted, may_hold_more, limits)?.unwrap_or(true));
        }
        let Some(Reopened { file, is_recognised, .. }) = written.open_again(self.to, limits)? else { return Ok(true) };
        check_written(&file, wanted, false)?;
        file.entries().iter().try_for_each(|entry| file.check(entry, &mut |_| watch.step(0)))?;
        Ok(is_recognised)
    }

    /// Checks a folder under the temporary name.
    pub(crate) fn check_folder(&self, written: &Path, target: &Path) -> Result<(), Error> {
        let about = |e: Error| e.about(&target.display().to_string());
        let options = OpenOptions::new().limits(self.checkpoint.limits().clone());
        let file = options.open(written).map_err(about)?;
        let wanted = self.tensors.iter().map(|tensor| Wanted { spec: &tensor.spec, offset: None });
        check_written(&file, wanted, false).map_err(about)
    }

    /// The number of the output's bytes that come from the frame in the source's receipt; `None` without a frame.
    #[must_use]
    pub fn frame_bytes(&self) -> Option<u64> {
        let Template::Frame(file) = &self.base else { return None };
        let values = file.entries().iter().map(blob_io::Entry::byte_len).fold(0, u64::saturating_add);
        Some(file.file_len().saturating_sub(values))
    }
}

impl Shards {
    /// Checks each shard and the index, which is the last file.
    pub(crate) fn check_files(
        &self,
        written: &[Complete],
        tensors: &[Planned],
        source: &Checkpoint,
    ) -> Result<(), Error> {
        let mut wanted: Vec<Vec<Wanted<'_>>> = self.files.iter().map(|_| Vec::new()).collect();
        for (number, tensor) in tensors.iter().enumerate() {
            let (file, offset) = self.place(number);
            wanted[file].push(Wanted { spec: &tensor.spec, offset: Some(offset) });
        }
        for (written, wanted) in written.iter().zip(wanted) {
            written.check(Format::Safetensors, wanted.iter().copied(), false, source.limits())?;
        }
        let files: Vec<String> = self.files.iter().map(Shard::name).collect();
        let sharded = tensors.iter().enumerate().map(|(number, tensor)| {
            let (file, _) = self.place(number);
            Sharded { name: &tensor.spec.name, file: &files[file] }
        });
        written.last().map_or(Ok(()), |index| index.check_index(sharded, source.limits()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use blob_core::DType;
    use blob_io::{Bytes, Checkpoint, Format, IfExists};

    use crate::{Options, Place, Silent, plan};

    /// The reopened file differs from the plan: the old file stays, and no temporary file is left.
    #[test]
    fn an_output_that_is_not_as_planned_leaves_the_old_one() {
        let vector = b"\x0a\x0f\x2A\x08\x00\x00\x80\x3F\x00\x00\x00\x40\x3A\x03\x0A\x01\x02";
        let source = Checkpoint::from_source("two.vector", Box::new(Bytes(&vector[..]))).expect("opens");
        let folder = std::env::temp_dir().join(format!("blob-again-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        for (name, shard_size) in [("x.safetensors", None), ("x.npz", None), ("s.safetensors", Some(1))] {
            let path = folder.join(name);
            fs::write(&path, "the old one").expect("written");
            let target = Place::File { path: &path, if_exists: IfExists::Replace };
            let to = Format::from_extension(name.rsplit('.').next().unwrap_or_default()).expect("a format");
            let options = Options::new(to).with(|options| options.shard_size = shard_size);
            let mut wrong = plan(&source, &options, &target).expect("a plan");
            // As if the writer had written another name, or another dtype.
            wrong.tensors[0].spec.dtype = DType::I32;
            let refused = wrong.run(&Silent).expect_err("it is not as planned").to_string();
            assert!(refused.contains("@0"), "{refused}");
            assert_eq!(fs::read(&path).expect("there"), b"the old one", "{name}");
            let files: Vec<_> =
                fs::read_dir(&folder).expect("a folder").flatten().map(|file| file.file_name()).collect();
            assert_eq!(files, [name], "{name}");
            fs::remove_file(&path).expect("removed");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}
