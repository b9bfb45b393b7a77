//! Launches through tokens: the bytes that a kernel reads and writes, and refusals before anything is enqueued.

use std::sync::Arc;
use std::thread;

use fake_cuda::control::{Session, Setup};
use synced_mem::cuda::{Cuda, Failure, Grid, Kernel, Program, launch};
use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Arg, Device, Error, Location, Queue, SharedMem};

use crate::{expect_no_leaks, gpu, seed};

/// Bytes to bytes that are one more.
static MORE: Program = Program::new(
    "more",
    "
.version 8.0
.target sm_70
.address_size 64

.visible .entry more(
	.param .u64 more_param_0,
	.param .u64 more_param_1,
	.param .u32 more_param_2
)
{
	.reg .pred 	%p<2>;
	.reg .b16 	%rs<3>;
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<11>;

	ld.param.u64 	%rd2, [more_param_0];
	ld.param.u64 	%rd3, [more_param_1];
	ld.param.u32 	%r1, [more_param_2];
	cvt.u64.u32 	%rd4, %r1;
	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %ntid.x;
	mul.wide.u32 	%rd5, %r1, %r2;
	mov.u32 	%r3, %tid.x;
	cvt.u64.u32 	%rd6, %r3;
	add.s64 	%rd1, %rd5, %rd6;
	setp.ge.u64 	%p1, %rd1, %rd4;
	@%p1 bra 	$L__BB0_2;

	cvta.to.global.u64 	%rd7, %rd2;
	add.s64 	%rd8, %rd7, %rd1;
	ld.global.u8 	%rs1, [%rd8];
	add.s16 	%rs2, %rs1, 1;
	cvta.to.global.u64 	%rd9, %rd3;
	add.s64 	%rd10, %rd9, %rd1;
	st.global.u8 	[%rd10], %rs2;

$L__BB0_2:
	ret;

}
",
);

static TOO_NEW: Program =
    Program::new("too new", ".version 9.9\n.target sm_70\n.address_size 64\n.visible .entry a() { ret; }\n");
static NONSENSE: Program = Program::new("nonsense", "this is no PTX");

fn more(queue: &dyn Queue) -> Kernel {
    MORE.load(queue).unwrap().unwrap().kernel("more").unwrap()
}

fn params(from: &Arg<'_>, to: &Arg<'_>, len: usize) -> Vec<u8> {
    [&from.address().to_ne_bytes()[..], &to.address().to_ne_bytes(), &(len as u32).to_ne_bytes()].concat()
}

fn grid(len: usize) -> Grid {
    Grid::new([len.div_ceil(64) as u32, 1, 1], [64, 1, 1])
}

/// `to` becomes one more than `from`, by work on a queue.
pub(crate) fn add_one(queue: &Arc<dyn Queue>, from: &SharedMem, to: &SharedMem) -> Result<(), Error> {
    more(&**queue);
    let (from, mut to) = (from.device(queue, ..)?, to.device_overwrite(queue, ..)?);
    add_one_of(queue, from.arg(), to.arg_mut())
}

/// The same, of bytes that a token has.
pub(crate) fn add_one_of(queue: &Arc<dyn Queue>, from: Arg<'_>, to: Arg<'_>) -> Result<(), Error> {
    let kernel = more(&**queue);
    let (len, uses) = (to.range().len(), [from, to]);
    let params = params(&uses[0], &uses[1], len);
    // SAFETY: the kernel reads `len` bytes of the one and writes as many of the other.
    unsafe { launch(&**queue, &kernel, grid(len), &uses, &params) }
}

#[test]
fn kernels_take_turns_with_transfers_in_every_order() {
    for number in 0..8 {
        let (session, gpu, queue) = gpu(seed(number));
        let other = gpu.queue().unwrap();
        let far = Cuda::open(1).unwrap().queue().unwrap();
        let (a, b) = (SharedMem::from(vec![1; 1000]), SharedMem::new(1000));
        add_one(&queue, &a, &b).unwrap();
        add_one(&other, &b, &a).unwrap();
        a.host_mut(7..9).unwrap().fill(100);
        add_one(&far, &a, &b).unwrap();
        add_one(&queue, &b, &a).unwrap();
        let mut wanted = [5; 1000];
        wanted[7..9].fill(102);
        assert_eq!(a.host(..).unwrap()[..], wanted);
        assert_eq!(a.stats().downloads.bytes, 2 + 1000);
        drop((a, b, queue, other, far, gpu));
        expect_no_leaks(&session);
    }
}

#[test]
fn a_program_is_loaded_once_for_each_gpu() {
    let (session, gpu, queue) = gpu(seed(1));
    let far = Cuda::open(1).unwrap().queue().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| more(&*queue));
        }
    });
    assert_eq!(session.calls("cuModuleLoadDataEx"), 1);
    let kernel = more(&*far);
    assert_eq!(session.calls("cuModuleLoadDataEx"), 2);
    drop((queue, far, gpu));
    assert_eq!(session.leaks().modules, 1, "a kernel keeps its GPU");
    drop(kernel);
    expect_no_leaks(&session);
}

#[test]
fn a_queue_of_another_backend_has_no_programs() {
    let _session = Session::start(seed(1));
    assert!(MORE.load(&*Loopback::new(Mode::Deferred).queue().unwrap()).unwrap().is_none());
}

/// The driver's answer.
fn code(error: &Error) -> u32 {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return failure.code;
        }
        source = error.source();
    }
    panic!("{error}")
}

#[test]
fn a_text_that_the_driver_refuses_is_an_error_and_changes_nothing() {
    let (session, gpu, queue) = gpu(seed(1));
    let memory = SharedMem::from(vec![1; 64]);
    let refused = |program: &'static Program, words: &str| {
        let error = program.load(&*queue).unwrap_err();
        assert!(matches!(error, Error::Device { op: "load", .. }), "{error}");
        assert!(error.to_string().ends_with(words), "the compiler's words: {error}");
        code(&error)
    };
    let (too_new, nonsense) = ("): PTX 9.9 is not known to this compiler", "): PTX: line 1: `this` is not known");
    // `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`, `CUDA_ERROR_INVALID_PTX`.
    assert_eq!((refused(&TOO_NEW, too_new), refused(&NONSENSE, nonsense)), (222, 218));
    session.fail("cuModuleLoadDataEx", 1, 222);
    assert_eq!(refused(&TOO_NEW, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"), 222, "without words");
    let absent = MORE.load(&*queue).unwrap().unwrap().kernel("less").unwrap_err();
    assert!(absent.to_string().ends_with("no kernel `less` in `more`"), "{absent}");
    assert_eq!(session.reports().len(), 1, "the driver says what is wrong with the text");
    add_one(&queue, &memory, &SharedMem::new(64)).unwrap();
    assert_eq!(memory.host(..).unwrap()[..], [1; 64]);
    drop((memory, queue, gpu));
    expect_no_leaks(&session);
}

#[test]
fn a_launch_that_cannot_be_is_refused_before_the_driver_is_asked() {
    let (session, gpu, queue) = gpu(seed(1));
    let (other, far) = (gpu.queue().unwrap(), Cuda::open(1).unwrap().queue().unwrap());
    let loopback = Loopback::new(Mode::Deferred).queue().unwrap();
    let kernel = more(&*queue);
    let memory = SharedMem::from(vec![1; 64]);
    let mut token = memory.device_mut(&queue, ..).unwrap();
    let uses = [token.arg_mut()];
    let good = (grid(64), params(&uses[0], &uses[0], 64));
    let try_it = |queue: &dyn Queue, grid: Grid, params: &[u8]| {
        // SAFETY: the kernel would stay within the argument, and is not launched.
        let error = unsafe { launch(queue, &kernel, grid, &uses, params) }.unwrap_err();
        error.to_string()
    };
    let sized = |blocks, threads| try_it(&*queue, Grid::new(blocks, threads), &good.1);
    let said = [
        (sized([0, 1, 1], [64, 1, 1]), "0 blocks along x"),
        (sized([1, 65_536, 1], [64, 1, 1]), "65536 blocks along y, and 1 to 65535 are taken"),
        (sized([1, 1, 1], [1025, 1, 1]), "1025 threads along x"),
        (sized([1, 1, 1], [64, 64, 1]), "4096 threads in a block, and 1024 are taken"),
        (try_it(&*queue, good.0, &good.1[1..]), "19 bytes of parameters, the kernel has 20"),
        (try_it(&*far, good.0, &good.1), "loaded for another device"),
        (try_it(&*loopback, good.0, &good.1), "loaded for another device"),
        (try_it(&*other, good.0, &good.1), "borrowed for"),
    ];
    for (message, wanted) in said {
        assert!(message.contains(wanted), "{message}, not {wanted}");
    }
    assert_eq!(session.calls("cuLaunchKernel"), 0);
    drop(token);
    assert_eq!(memory.host(..).unwrap()[..], [1; 64]);
    drop((memory, kernel, queue, other, far, gpu));
    expect_no_leaks(&session);
}

#[test]
fn a_kernel_that_fails_loses_its_output_and_nothing_that_the_host_holds() {
    let (session, gpu, queue) = gpu(seed(1));
    let (from, to) = (SharedMem::from(vec![1; 64]), SharedMem::from(vec![2; 64]));
    drop(from.device(&queue, ..).unwrap());
    queue.synchronize().unwrap();
    session.fail_work(1, 716);
    add_one(&queue, &from, &to).unwrap();
    let error = to.host(..).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_MISALIGNED_ADDRESS (716)"), "{error}");
    assert_eq!(from.host(..).unwrap()[..], [1; 64]);
    assert!(!to.valid_on(Location::Host, ..));
    to.host_overwrite(..).unwrap().fill(3);
    assert_eq!(to.host(..).unwrap()[..], [3; 64]);
    assert!(MORE.load(&*queue).is_err() && gpu.queue().is_err());
    drop((from, to, queue, gpu));
    expect_no_leaks(&session);
}

/// Until a kernel may start, and where the driver refuses it.
#[test]
fn each_call_of_a_launch_in_turn() {
    for nth in 1.. {
        let session = Session::start(Setup::default());
        let (from, to) = (SharedMem::from(vec![1; 64]), SharedMem::from(vec![9; 64]));
        session.fail("", nth, 999);
        let result = (|| {
            let gpu = Cuda::open(0).map_err(|_| ())?;
            let queue = gpu.queue().map_err(|_| ())?;
            let loaded = MORE.load(&*queue).map_err(|_| ())?;
            let kernel = loaded.unwrap().kernel("more").map_err(|_| ())?;
            // Up to here no memory has been touched.
            assert!(from.valid_on(Location::Host, ..) && to.valid_on(Location::Host, ..));
            let (from, mut to) = (from.device(&queue, ..).map_err(|_| ())?, to.device_mut(&queue, ..).map_err(|_| ())?);
            let uses = [from.arg(), to.arg_mut()];
            let params = params(&uses[0], &uses[1], 64);
            // SAFETY: the kernel reads 64 bytes of the one and writes as many of the other.
            unsafe { launch(&*queue, &kernel, grid(64), &uses, &params) }.map_err(|_| ())
        })();
        // The call may be the one that brings the bytes back.
        let bytes = to.host(..).or_else(|_| to.host(..)).unwrap().to_vec();
        assert!(bytes == [2; 64] || (result.is_err() && bytes == [9; 64]), "call {nth}: {bytes:?}");
        assert_eq!(from.host(..).unwrap()[..], [1; 64]);
        let is_over = session.calls("") < nth;
        drop((from, to));
        expect_no_leaks(&session);
        if is_over {
            assert!(nth > 40, "only {nth} calls");
            break;
        }
    }
}
