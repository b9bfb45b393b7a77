//! Transforms: results equal NumPy's, however the values are stored; refusals, counts, and a user's own transform.

use std::path::Path;

use blob_convert::change::Effect;
use blob_convert::transform::{
    Amount, Compute, Context, Dtype, Inputs, Made, Misfit, Outcome, Spec, Stream, Transform,
};
use blob_convert::{Options, Place, Silent, plan};
use blob_core::{AnyBlob, DType, Shape};
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Error, Format, IfExists, Writer};
use half::{bf16, f16};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::conversion::to_file;
use crate::support::message::{len, var};
use crate::support::{data, open};

/// The transform that converts floats of any width to this dtype.
pub(crate) fn float(dtype: DType) -> Dtype {
    Dtype::new(dtype).expect("a dtype of floats")
}

/// A Caffe file whose one blob begins at an odd offset.
fn odd(values: &[f32]) -> Checkpoint {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let blob = [len(7, &var(1, values.len() as u64)), len(5, &bytes)].concat();
    open("odd.binaryproto", &blob).expect("opens")
}

fn npz(tensors: &[(&str, DType, &[u8])], is_deflated: bool) -> Checkpoint {
    let method = if is_deflated { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let members: Vec<(String, Vec<u8>)> = tensors
        .iter()
        .map(|(name, dtype, bytes)| {
            let descr =
                if dtype.is_float() { format!("'<f{}'", dtype.size()) } else { format!("'<i{}'", dtype.size()) };
            let shape = format!("({},)", bytes.len() / dtype.size());
            (format!("{name}.npy"), crate::support::archive::npy(&descr, &shape, bytes))
        })
        .collect();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, npy)| (&**name, &**npy)).collect();
    open("x.npz", &crate::support::archive::theirs(method, &members)).expect("opens")
}

fn bytes(file: &Checkpoint, name: &str) -> Vec<u8> {
    file.view(file.entry(name).unwrap_or_else(|| panic!("no {name:?}"))).expect("views").into_owned()
}

/// The values of floats, by the half crate.
fn floats(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(dtype.size())
        .map(|bytes: &[u8]| match (dtype, bytes) {
            (DType::F16, [a, b]) => f16::from_le_bytes([*a, *b]).to_f64(),
            (DType::BF16, [a, b]) => bf16::from_le_bytes([*a, *b]).to_f64(),
            (DType::F32, [a, b, c, d]) => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
            _ => f64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        })
        .collect()
}

/// Whether two arrays of floats have the same bits, where all NaNs are equal.
fn same(dtype: DType, ours: &[u8], theirs: &[u8]) -> bool {
    let width = dtype.size();
    let is_nan = |bytes: &[u8]| blob_ops::count_nonfinite(dtype, bytes).nan == 1;
    ours.len() == theirs.len()
        && ours.chunks_exact(width).zip(theirs.chunks_exact(width)).all(|(a, b)| a == b || is_nan(a) && is_nan(b))
}

#[test]
fn floats_are_rounded_as_numpy_rounds_them() {
    let golden = Checkpoint::open(data("transform/dtype.npz")).expect("opens");
    let folder = tempfile::tempdir().expect("a folder");
    let mut pairs = 0;
    for entry in golden.entries().iter().filter(|entry| entry.name().contains('.')) {
        let (from, to) = entry.name().split_once('.').expect("two dtypes");
        let (from, to): (DType, DType) = (from.parse().expect("a dtype"), to.parse().expect("a dtype"));
        let (values, theirs) = (bytes(&golden, from.name()), bytes(&golden, entry.name()));
        for is_deflated in [false, true] {
            let source = npz(&[("a", from, &values)], is_deflated);
            let path = folder.path().join("out.safetensors");
            let done =
                to_file(&source, &Options::new(Format::Safetensors).transform(float(to)), &path).expect("written");
            let ours = Checkpoint::open(&path).expect("opens");
            assert_eq!(ours.entries()[0].dtype(), Some(to));
            assert!(same(to, &bytes(&ours, "a"), &theirs), "{from} to {to}");
            let infinite = |dtype, bytes: &[u8]| blob_ops::count_nonfinite(dtype, bytes).inf;
            let lost = infinite(to, &theirs) - infinite(from, &values);
            let found: Vec<Amount> = done.found.iter().map(|found| found.amount).collect();
            let zeros = |dtype, bytes: &[u8]| floats(dtype, bytes).iter().filter(|value| **value == 0.0).count() as u64;
            let zeroed = zeros(to, &theirs) - zeros(from, &values);
            let wanted = [Amount::Zeroed(zeroed), Amount::Infinite(lost)];
            let wanted: Vec<Amount> = wanted.into_iter().filter(|amount| amount.lost() > Some(0)).collect();
            assert_eq!(found, wanted, "{from} to {to}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, 10);
}

/// The pass splits a file into pieces of 1 MiB, and no element of this file begins at the start of a piece.
#[test]
fn elements_across_the_pieces_of_a_file_are_rounded_once() {
    let values: Vec<f32> = (0..900_000_u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
    let (source, folder) = (odd(&values), tempfile::tempdir().expect("a folder"));
    assert_eq!(source.entries()[0].offset().expect("bytes") % 2, 1);
    let (path, npy) = (folder.path().join("out.safetensors"), folder.path().join("out/"));
    let half: Vec<u8> = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
    let options = Options::new(Format::Safetensors).transform(float(DType::F16));
    let lost = to_file(&source, &options, &path).expect("written").found;
    assert!(same(DType::F16, &bytes(&Checkpoint::open(&path).expect("opens"), "@0"), &half));
    let infinite = |v: &&f32| v.is_finite() && f16::from_f32(**v).is_infinite();
    let zeroed = |v: &&f32| **v != 0.0 && f16::from_f32(**v) == f16::ZERO;
    let [zeroed, infinite] = [values.iter().filter(zeroed).count(), values.iter().filter(infinite).count()];
    let wanted = [Amount::Zeroed(zeroed as u64), Amount::Infinite(infinite as u64)];
    assert_eq!(lost.iter().map(|found| found.amount).collect::<Vec<_>>(), wanted);
    // Of two transforms in sequence, each rounds.
    let twice = Options::new(Format::Npy).transform(float(DType::BF16)).transform(float(DType::F64));
    let target = Place::Folder { path: &npy, if_exists: IfExists::Refuse };
    plan(&source, &twice, &target).expect("a plan").run(&Silent).expect("written");
    let wide: Vec<u8> = values.iter().flat_map(|v| f64::from(bf16::from_f32(*v)).to_le_bytes()).collect();
    assert!(same(DType::F64, &bytes(&Checkpoint::open(&npy).expect("opens"), "@0"), &wide));
}

#[test]
fn values_that_would_be_lost_are_told_or_refused() {
    let source = odd(&[1.0, 65504.0, 65520.0, -1e9, f32::INFINITY]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.safetensors");
    let options = Options::new(Format::Safetensors).transform(float(DType::F16));
    let said = "\"@0\": 2 values became infinite as f16";
    assert_eq!(to_file(&source, &options, &path).expect("written").found[0].to_string(), said);
    std::fs::remove_file(&path).expect("removable");
    let refused = to_file(&source, &options.with(|o| o.strict = true), &path).expect_err("values are lost").to_string();
    let said = "2 values in 1 tensor became infinite as f16: \"@0\"";
    assert_eq!(refused, format!("odd.binaryproto: would lose values: {said}"));
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
}

#[test]
fn what_is_no_float_stays_and_is_said() {
    let source = npz(&[("n", DType::I32, &[1, 0, 0, 0]), ("x", DType::F32, &1.5f32.to_le_bytes())], false);
    let options = Options::new(Format::Safetensors).transform(float(DType::F16));
    let plan = plan(&source, &options, &Place::Stdout).expect("a plan");
    assert_eq!(plan.notes(), ["1 tensor does not hold floats, and stays as it is"]);
    let dtypes: Vec<DType> = plan.tensors().iter().map(|tensor| tensor.spec.dtype).collect();
    assert_eq!(dtypes, [DType::I32, DType::F16]);
    assert!(plan.tensors()[0].changes.is_empty());
    let rounded = Effect::Rounded { from: DType::F32, to: DType::F16 };
    assert_eq!(plan.tensors()[1].changes.iter().map(|change| &change.effect).collect::<Vec<_>>(), [&rounded]);
    assert!(plan.tensors()[1].changes[0].is_asked);
}

/// A user's own transform: replaces two tensors by the sum, under one name.
#[derive(Debug)]
struct Sum {
    /// The number of values that are missing in the result.
    lacking: usize,
}

#[derive(Debug)]
struct Adding(usize);

impl Transform for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let odd = tensors.iter().map(|spec| &spec.tensor).filter(|tensor| tensor.shape != tensors[0].tensor.shape);
        let odd: Vec<Misfit> = odd.map(|tensor| Misfit::new(&tensor.name, "has another shape")).collect();
        if !odd.is_empty() {
            return Err(odd);
        }
        let sum = TensorSpec::new("sum", DType::F32, tensors[0].tensor.shape.clone());
        Ok([Made::computed(sum, (0..tensors.len()).collect(), Adding(self.lacking))].into_iter().collect())
    }
}

fn singles(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

impl Compute for Adding {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let (a, b) = (singles(&inputs.whole(0)?), singles(&inputs.whole(1)?));
        inputs.report(Amount::Most(f64::from(b[0])), "is the most that was added");
        let mut sums = a.into_iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f32>>().into_iter();
        sums.by_ref().take(self.0).for_each(|_| {});
        Ok(Box::new(move |out: &mut [u8]| {
            let mut n = 0;
            for (out, sum) in out.chunks_exact_mut(4).zip(&mut sums) {
                out.copy_from_slice(&sum.to_le_bytes());
                n += 4;
            }
            Ok(n)
        }))
    }
}

fn two(b: &[f32]) -> Checkpoint {
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    npz(&[("a", DType::F32, &bytes(&[1.0, 2.0, 3.0])), ("b", DType::F32, &bytes(b))], false)
}

#[test]
fn a_transform_of_ones_own_stands_beside_ours() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.safetensors");
    let own = |lacking| Options::new(Format::Safetensors).transform(Sum { lacking }).transform(float(DType::F64));
    let source = two(&[10.0, 20.0, 30.0]);
    let done = to_file(&source, &own(0), &path).expect("written");
    let wide: Vec<u8> = [11.0f64, 22.0, 33.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(bytes(&Checkpoint::open(&path).expect("opens"), "sum"), wide);
    assert_eq!(done.found[0].to_string(), "\"sum\": 1e1 is the most that was added");
    let refused = to_file(&source, &own(1), &path).expect_err("a value is lacking").to_string();
    assert!(refused.ends_with("array \"sum\": its values are not as many as were planned"), "{refused}");
    let refused = plan(&two(&[1.0]), &own(0), &Place::Stdout).expect_err("other shapes").to_string();
    assert_eq!(refused, "x.npz: does not allow sum: \"b\" has another shape");
}

/// The violations of a transform, each with the error.
#[derive(Debug)]
struct Wrong(fn(&[Spec<'_>]) -> Outcome);

fn named(mut made: Made, name: &str) -> Made {
    made.tensor.name = name.to_owned();
    made
}

impl Transform for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn settings(&self) -> Value {
        Value::Null
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        Ok(self.0(tensors))
    }
}

#[test]
fn no_transform_loses_a_tensor_or_a_name_in_silence() {
    let source = two(&[1.0]);
    let refused = |wrong| {
        let options = Options::new(Format::Safetensors).transform(Wrong(wrong));
        plan(&source, &options, &Place::Stdout).expect_err("wrong").to_string()
    };
    assert_eq!(
        refused(|all| [Made::same(0, &all[0])].into_iter().collect()),
        "x.npz: does not allow wrong: \"b\" is lost"
    );
    assert_eq!(
        refused(|all| all.iter().enumerate().map(|(i, spec)| named(Made::same(i, spec), "c")).collect()),
        "x.npz: does not allow wrong: \"a\", \"b\" would all be called \"c\""
    );
    assert_eq!(
        refused(|all: &[Spec<'_>]| {
            let mut b = Made::same(1, &all[1]);
            b.tensor.shape = Shape::new([4]).expect("a shape");
            [Made::same(0, &all[0]), b].into_iter().collect()
        }),
        "x.npz: does not allow wrong: \"b\" is 4, and is made of 1"
    );
    assert_eq!(
        refused(|all: &[Spec<'_>]| {
            let none = Made::computed(all[0].tensor.clone(), vec![], Adding(0));
            let mut outcome: Outcome = [none].into_iter().collect();
            outcome.left_out.extend([(0, "x".to_owned()), (1, "y".to_owned())]);
            outcome
        }),
        "x.npz: does not allow wrong: \"a\" is made from no existing tensor"
    );
    assert_eq!(
        refused(|all: &[Spec<'_>]| {
            let mut outcome: Outcome = all.iter().enumerate().map(|(i, spec)| Made::same(i, spec)).collect();
            outcome.left_out.push((99, "x".to_owned()));
            outcome
        }),
        "x.npz: does not allow wrong: tensor 99, which is left out, is not one of the 2"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A wider dtype represents every value of a narrower one.
    #[test]
    fn values_come_back_from_a_wider_dtype(bits in prop::collection::vec(any::<u64>(), 1..300), pair in 0usize..5) {
        use DType::{BF16, F16, F32, F64};
        let (narrow, wide) = [(F16, F32), (BF16, F32), (F32, F64), (F16, F64), (BF16, F64)][pair];
        let width = narrow.size();
        let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()[..width].to_vec()).collect();
        let shape = Shape::new([bits.len()]).expect("a shape");
        let blob = AnyBlob::from_vec(shape, narrow, bytes.clone()).expect("a blob");
        let folder = tempfile::tempdir().expect("a folder");
        let [from, there, back] = ["from", "there", "back"].map(|name| folder.path().join(name));
        Writer::new(Format::Safetensors).tensor("x", &blob).write(&from, IfExists::Refuse).expect("written");
        let open = |path: &Path| Checkpoint::open(path).expect("opens");
        let options = |dtype| Options::new(Format::Safetensors).transform(float(dtype)).with(|o| o.strict = true);
        to_file(&open(&from), &options(wide), &there).expect("written");
        to_file(&open(&there), &options(narrow), &back).expect("written");
        prop_assert!(same(narrow, &crate::transform::bytes(&open(&back), "x"), &bytes));
    }
}
