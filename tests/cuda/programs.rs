//! Programs that are had at run time: how long they stay loaded, cubins, shared memory that a launch asks for, and
//! launches whose blocks run at once.

use std::sync::Arc;

use fake_cuda::control::Session;
use synced_mem::cuda::{Grid, Image, Kernel, Loaded, launch};
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, Error, Queue, SharedMem};

use crate::{expect_no_leaks, gpu, seed};

/// 64 bytes in reverse, by way of shared memory from an offset on.
const TURN: &str = "
.version 8.0
.target sm_70
.address_size 64

.visible .entry turn(
	.param .u64 turn_param_0,
	.param .u64 turn_param_1,
	.param .u32 turn_param_2
)
{
	.reg .b16 	%rs<3>;
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<8>;

	ld.param.u64 	%rd1, [turn_param_0];
	ld.param.u64 	%rd2, [turn_param_1];
	ld.param.u32 	%r1, [turn_param_2];
	mov.u32 	%r2, %tid.x;
	cvt.u64.u32 	%rd3, %r2;
	cvta.to.global.u64 	%rd4, %rd1;
	add.s64 	%rd5, %rd4, %rd3;
	ld.global.u8 	%rs1, [%rd5];
	add.s32 	%r3, %r1, %r2;
	st.shared.u8 	[%r3], %rs1;
	bar.sync 	0;
	sub.s32 	%r4, 63, %r2;
	add.s32 	%r5, %r1, %r4;
	ld.shared.u8 	%rs2, [%r5];
	cvta.to.global.u64 	%rd6, %rd2;
	add.s64 	%rd7, %rd6, %rd3;
	st.global.u8 	[%rd7], %rs2;
	ret;

}
";

const PARAMS: usize = 20;

fn grid(blocks: u32, shared: u32) -> Grid {
    let mut grid = Grid::new([blocks, 1, 1], [64, 1, 1]);
    grid.shared = shared;
    grid
}

/// Launches `turn` with the last of the shared memory.
fn turn(queue: &Arc<dyn Queue>, kernel: &Kernel, grid: Grid, to: &SharedMem) -> Result<(), Error> {
    let from = SharedMem::from((0..64).collect::<Vec<u8>>());
    let (from, mut to) = (from.device(queue, ..)?, to.device_overwrite(queue, ..)?);
    let uses = [from.arg(), to.arg_mut()];
    let [a, b] = [0, 1].map(|index: usize| uses[index].address().to_ne_bytes());
    let params = [&a[..], &b, &(grid.shared - 64).to_ne_bytes()].concat();
    // SAFETY: each of 64 threads reads a byte of the one and writes a byte of the other, and has one of shared memory.
    unsafe { launch(&**queue, kernel, grid, &uses, &params) }
}

fn is_turned(to: &SharedMem) -> bool {
    to.host(..).unwrap().iter().copied().eq((0..64).rev())
}

fn load(queue: &Arc<dyn Queue>, image: Image<'_>) -> Loaded {
    Loaded::of(&**queue, "turn", image).unwrap().unwrap()
}

#[test]
fn a_program_is_unloaded_with_its_last_handle_and_after_its_kernels() {
    let (session, gpu, queue) = gpu(seed(1));
    // Not a text of the program's own: it is gone before the kernel runs.
    let loaded = load(&queue, Image::Ptx(&String::from(TURN)));
    let other = load(&queue, Image::Ptx(TURN));
    let (kernel, to) = (loaded.kernel("turn").unwrap(), SharedMem::new(64));
    drop((loaded.clone(), other));
    assert_eq!(session.leaks().modules, 1);
    drop(loaded);
    turn(&queue, &kernel, grid(1, 64), &to).unwrap();
    assert_eq!(session.leaks().modules, 1, "a kernel is there");
    // The launch has not run yet.
    drop(kernel);
    assert_eq!((session.leaks().modules, session.reports()), (0, Vec::new()));
    assert!(is_turned(&to));
    drop((to, queue, gpu));
    expect_no_leaks(&session);
}

/// A header alone, after which the driver for tests looks for PTX.
fn cubin() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes.extend(TURN.bytes().chain([0]));
    bytes
}

#[test]
fn a_cubin_is_loaded_whole_and_its_kernels_are_asked_for_with_the_bytes_of_their_parameters() {
    let (session, gpu, queue) = gpu(seed(2));
    let (loaded, to) = (load(&queue, Image::Cubin(&cubin())), SharedMem::new(64));
    let unknown = loaded.kernel("turn").unwrap_err().to_string();
    assert!(unknown.ends_with("`turn` does not say the bytes of the parameters of `turn`"), "{unknown}");
    assert!(loaded.kernel_of("twist", PARAMS).is_err());
    turn(&queue, &loaded.kernel_of("turn", PARAMS).unwrap(), grid(1, 64), &to).unwrap();
    assert!(is_turned(&to));
    let calls = session.calls("cuModuleLoadDataEx");
    for image in [Image::Cubin(&cubin()[..63]), Image::Cubin(TURN.as_bytes()), Image::Ptx("a\0b")] {
        let refused = Loaded::of(&*queue, "turn", image).unwrap_err();
        assert!(matches!(refused, Error::Device { op: "load", .. }), "{refused}");
    }
    assert_eq!(session.calls("cuModuleLoadDataEx"), calls, "the driver is not asked");
    drop((loaded, to, queue, gpu));
    expect_no_leaks(&session);
}

#[test]
fn a_text_that_the_driver_refuses_leaves_no_module() {
    let (session, gpu, queue) = gpu(seed(1));
    let refused = Loaded::of(&*queue, "nonsense", Image::Ptx("this is no PTX")).unwrap_err();
    assert!(refused.to_string().ends_with("): PTX: line 1: `this` is not known"), "{refused}");
    assert_eq!(session.reports().len(), 1);
    let loopback = Loopback::new(Mode::Deferred).queue().unwrap();
    assert!(Loaded::of(&*loopback, "turn", Image::Ptx(TURN)).unwrap().is_none());
    drop((queue, gpu));
    expect_no_leaks(&session);
}

fn said(session: &Session, result: Result<(), Error>, words: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(words), "{error}, not {words}");
    assert_eq!(session.reports(), [""; 0]);
}

#[test]
fn a_launch_has_the_shared_memory_that_it_asks_for() {
    let (session, gpu, queue) = gpu(seed(3));
    let (loaded, to) = (load(&queue, Image::Ptx(TURN)), SharedMem::new(64));
    let kernel = loaded.kernel("turn").unwrap();
    for (shared, asked) in [(64, 0), (48 << 10, 0), (100 << 10, 1), (227 << 10, 2), (64, 2)] {
        to.host_overwrite(..).unwrap().fill(0);
        turn(&queue, &kernel, grid(1, shared), &to).unwrap();
        assert!(is_turned(&to));
        assert_eq!(session.calls("cuFuncSetAttribute"), asked, "for {shared} bytes");
    }
    let launches = session.calls("cuLaunchKernel");
    let beyond = turn(&queue, &kernel, grid(1, (227 << 10) + 1), &to);
    said(&session, beyond, "232449 bytes of shared memory in a block, and 232448 are left");
    assert_eq!(session.calls("cuLaunchKernel"), launches);
    drop((kernel, loaded, to, queue, gpu));
    expect_no_leaks(&session);
}

#[test]
fn a_cooperative_launch_says_so_and_the_driver_refuses_more_blocks_than_run_at_once() {
    let (session, gpu, queue) = gpu(seed(4));
    let (loaded, to) = (load(&queue, Image::Ptx(TURN)), SharedMem::new(64));
    let kernel = loaded.kernel("turn").unwrap();
    let cooperative = |blocks, shared| {
        let mut grid = grid(blocks, shared);
        grid.is_cooperative = true;
        grid
    };
    turn(&queue, &kernel, cooperative(1, 100 << 10), &to).unwrap();
    assert_eq!((session.calls("cuLaunchKernelEx"), session.calls("cuLaunchKernel")), (1, 0));
    assert!(is_turned(&to));
    said(&session, turn(&queue, &kernel, cooperative(133, 64), &to), "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE (720)");
    turn(&queue, &kernel, grid(1, 64), &to).unwrap();
    assert!(is_turned(&to) && !gpu.is_lost());
    drop((kernel, loaded, to, queue, gpu));
    expect_no_leaks(&session);
}
