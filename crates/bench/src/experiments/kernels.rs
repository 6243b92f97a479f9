//! Filter kernels over packed codes beside what one core reads from memory.
//!
//! 1. A buffer that no cache holds is filled with codes drawn at random. Filters go over it vector by vector, a vector
//!    being as many rows as a large block has, so that the bitmap of what passed stays in the cache, as it does in a
//!    scan.
//! 2. In every round, for every width: the core reads the buffer once and adds up its words, then the kernel that pages
//!    take filters it, then the portable one filters a part of it. So a slow second of the machine hits all three, and
//!    the share of the bandwidth is that of the same second.
//! 3. Both kernels must pass the same number of rows in that part.
//!
//! Codes of 8, 16 and 32 bits are compared as they lie; those of other widths are unpacked first and need fewer bytes,
//! which is why they are told in values a second.

use std::hint::black_box;
use std::time::Instant;

use mycelium_encoding::page::{Bitmap, Kernel};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::statistics::Spread;
use crate::store::Result;

/// Bytes of codes at scale 1: many times what caches hold.
const BYTES: usize = 512 << 20;
/// The portable kernel takes one of so many bytes: it is slower by about as much.
const PORTABLE_SHARE: usize = 16;
const WIDTHS: [u32; 7] = [8, 16, 32, 3, 7, 11, 17];
/// Rows of a vector, a multiple of 64.
const VECTOR_ROWS: usize = 8192;
const ROUNDS: u32 = 7;

/// How it is run.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// Of the buffer.
    pub scale: f64,
    /// Seed of the codes.
    pub seed: u64,
    /// Whether to tell what is being done.
    pub progress: bool,
}

impl KernelSettings {
    /// The settings of the claims.
    pub fn new() -> Self {
        Self { scale: 1.0, seed: 1, progress: true }
    }
}

impl Default for KernelSettings {
    fn default() -> Self {
        Self::new()
    }
}

/// What filters over codes of one width reach.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WidthFigures {
    /// Bits of a code.
    pub width: u32,
    /// GB of codes a second, by the kernel that pages take.
    pub gigabytes: Spread,
    /// The same over what the core read in the same round.
    pub over_bandwidth: Spread,
    /// Codes a second, in thousands of millions.
    pub values: Spread,
    /// GB of codes a second, by the portable kernel.
    pub portable_gigabytes: Spread,
    /// Codes a second, by the portable kernel, in thousands of millions.
    pub portable_values: Spread,
}

/// All that the experiment showed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KernelReport {
    /// The kernel that pages take on this machine.
    pub kernel: String,
    /// Bytes of the buffer.
    pub bytes: usize,
    /// GB a second that one core reads.
    pub bandwidth: Spread,
    /// By width.
    pub widths: std::collections::BTreeMap<u32, WidthFigures>,
}

/// Measurements of one width, one a round.
#[derive(Default)]
struct Rounds {
    bandwidth: Vec<f64>,
    fastest: Vec<f64>,
    portable: Vec<f64>,
}

/// Runs the experiment.
pub fn run(settings: &KernelSettings) -> Result<KernelReport> {
    let codes = draw(settings);
    let mut rounds: Vec<Rounds> = WIDTHS.iter().map(|_| Rounds::default()).collect();
    for round in 0..ROUNDS {
        for (&width, rounds) in WIDTHS.iter().zip(&mut rounds) {
            measure(&codes, width, rounds)?;
        }
        if settings.progress {
            eprintln!("  round {} of {ROUNDS}", round + 1);
        }
    }
    let all = rounds.iter().flat_map(|rounds| rounds.bandwidth.clone()).collect();
    Ok(KernelReport {
        kernel: Kernel::Fastest.name().to_owned(),
        bytes: codes.len(),
        bandwidth: spread(all)?,
        widths: WIDTHS.iter().zip(&rounds).map(|(&w, rounds)| Ok((w, figures(w, rounds)?))).collect::<Result<_>>()?,
    })
}

fn draw(settings: &KernelSettings) -> Vec<u8> {
    let mut codes = vec![0; (BYTES as f64 * settings.scale) as usize];
    SmallRng::seed_from_u64(settings.seed).fill_bytes(&mut codes);
    codes
}

fn spread(values: Vec<f64>) -> Result<Spread> {
    Spread::of(values).ok_or_else(|| "nothing was measured".into())
}

/// GB a second of something that goes over so many bytes, and what it gives.
fn rate<T>(bytes: usize, run: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = black_box(run());
    (bytes as f64 / started.elapsed().as_secs_f64() / 1e9, result)
}

fn measure(codes: &[u8], width: u32, rounds: &mut Rounds) -> Result<()> {
    let part = &codes[..whole_vectors(codes.len() / PORTABLE_SHARE, width)];
    let whole = &codes[..whole_vectors(codes.len(), width)];
    rounds.bandwidth.push(rate(whole.len(), || read(whole)).0);
    let (fastest, _) = rate(whole.len(), || passed(Kernel::Fastest, whole, width));
    rounds.fastest.push(fastest);
    let (portable, expected) = rate(part.len(), || passed(Kernel::Portable, part, width));
    rounds.portable.push(portable);
    let found = passed(Kernel::Fastest, part, width);
    if found != expected {
        return Err(format!("the kernels pass {found} and {expected} of the same codes of {width} bits").into());
    }
    Ok(())
}

fn vector_len(width: u32) -> usize {
    width as usize * VECTOR_ROWS / 8
}

fn whole_vectors(len: usize, width: u32) -> usize {
    len - len % vector_len(width)
}

/// Adds up all words: as much as a core can do with bytes that it reads once. A plain sum: sums kept apart by hand were
/// made gathers of where the processor has AVX-512, which took nine times as long and made every kernel look good.
fn read(bytes: &[u8]) -> u64 {
    bytes.as_chunks::<8>().0.iter().fold(0, |sum, &word| sum.wrapping_add(u64::from_le_bytes(word)))
}

/// How many codes lie in the second tenth of all that a width has.
fn passed(kernel: Kernel, codes: &[u8], width: u32) -> usize {
    let tenth = (u32::MAX >> (32 - width)) / 10;
    let (mut selection, mut count) = (Bitmap::new(VECTOR_ROWS, true), 0);
    for vector in codes.chunks_exact(vector_len(width)) {
        selection.reset(VECTOR_ROWS, true);
        kernel.filter(vector, width, (tenth, tenth), &mut selection);
        count += selection.count();
    }
    count
}

fn figures(width: u32, rounds: &Rounds) -> Result<WidthFigures> {
    let values = |gigabytes: &[f64]| spread(gigabytes.iter().map(|rate| rate * 8.0 / f64::from(width)).collect());
    let shares = rounds.fastest.iter().zip(&rounds.bandwidth).map(|(kernel, bandwidth)| kernel / bandwidth).collect();
    Ok(WidthFigures {
        width,
        gigabytes: spread(rounds.fastest.clone())?,
        over_bandwidth: spread(shares)?,
        values: values(&rounds.fastest)?,
        portable_gigabytes: spread(rounds.portable.clone())?,
        portable_values: values(&rounds.portable)?,
    })
}

impl KernelReport {
    /// The report as a person reads it.
    pub fn table(&self) -> String {
        let mut out = format!(
            "filter kernels over {:.0} MB of packed codes; one core reads {:.1} GB/s ({:.1} to {:.1})\n",
            self.bytes as f64 / 1e6,
            self.bandwidth.median,
            self.bandwidth.least,
            self.bandwidth.greatest
        );
        out += &format!(
            "  {:>4}  {:>24}  {:>22}  {:>14}  {:>24}\n",
            "bits", self.kernel, "of the bandwidth", "10^9 values/s", "portable"
        );
        for figures in WIDTHS.iter().filter_map(|width| self.widths.get(width)) {
            let rate =
                |spread: &Spread| format!("{:.1} ({:.1} to {:.1}) GB/s", spread.median, spread.least, spread.greatest);
            let Spread { median, least, greatest, .. } = figures.over_bandwidth;
            let share = format!("{:.0} % ({:.0} to {:.0})", median * 100.0, least * 100.0, greatest * 100.0);
            out += &format!(
                "  {:>4}  {:>24}  {share:>22}  {:>14.2}  {:>24}, {:.2} 10^9 values/s\n",
                figures.width,
                rate(&figures.gigabytes),
                figures.values.median,
                rate(&figures.portable_gigabytes),
                figures.portable_values.median
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_is_measured_and_both_kernels_agree() {
        let settings = KernelSettings { scale: 0.002, progress: false, ..KernelSettings::new() };
        let report = run(&settings).expect("experiment");
        assert!(report.widths.keys().copied().eq([3, 7, 8, 11, 16, 17, 32]));
        for (width, figures) in &report.widths {
            assert!(figures.gigabytes.median > 0.0 && figures.over_bandwidth.count == ROUNDS as usize, "{width}");
            let bits = figures.values.median * f64::from(*width) / 8.0;
            assert!((bits / figures.gigabytes.median - 1.0).abs() < 1e-9, "{width}");
        }
        assert!(report.table().contains("of the bandwidth"));
    }

    #[test]
    fn about_a_tenth_of_random_codes_pass() {
        let codes = draw(&KernelSettings { scale: 0.001, ..KernelSettings::new() });
        for width in [8, 17, 32] {
            let part = &codes[..whole_vectors(codes.len(), width)];
            let share = passed(Kernel::Fastest, part, width) as f64 / (part.len() as f64 * 8.0 / f64::from(width));
            assert!((0.09..0.11).contains(&share), "{width}: {share}");
        }
    }
}
