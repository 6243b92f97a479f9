//! What is measured around a phase, and how.
//!
//! | figure | source | same for every engine |
//! |---|---|---|
//! | bytes written | `wchar` of `/proc/self/io`: bytes handed to write calls, whatever the page cache does with them | yes |
//! | bytes read | `rchar` of `/proc/self/io`; reads through a memory map are not in it (LMDB reads show as 0) | yes |
//! | CPU seconds | the process's CPU clock, all threads, user and system | yes |
//! | peak memory | `VmHWM` of `/proc/self/status`, reset before the phase through `/proc/self/clear_refs` | yes |
//! | latency | an HDR histogram with 3 digits per thread, merged | yes |
//!
//! Nothing else may run in the process: every engine gets one of its own (see [`crate::isolation`]).

use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The counters of this process at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counters {
    bytes_written: u64,
    bytes_read: u64,
    cpu: Duration,
}

impl Counters {
    /// Reads them now.
    pub fn now() -> Self {
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let clock = clock_gettime(ClockId::ProcessCPUTime);
        Self {
            bytes_written: field(&io, "wchar:"),
            bytes_read: field(&io, "rchar:"),
            cpu: Duration::new(clock.tv_sec.max(0) as u64, clock.tv_nsec.max(0) as u32),
        }
    }

    /// What was used since `earlier`.
    pub fn since(&self, earlier: &Self) -> Usage {
        Usage {
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            cpu_seconds: self.cpu.saturating_sub(earlier.cpu).as_secs_f64(),
        }
    }
}

/// What a phase used.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes handed to write calls, logs included.
    pub bytes_written: u64,
    /// Bytes obtained from read calls.
    pub bytes_read: u64,
    /// CPU seconds of all threads.
    pub cpu_seconds: f64,
}

/// Starts a new peak of resident memory, and returns whether the system let us.
pub fn reset_peak_memory() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The peak of resident memory since the last reset (or the start), in bytes.
pub fn peak_memory() -> u64 {
    field(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM:") * 1024
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Latencies of one thread. Times beyond a minute count as a minute.
pub struct Latencies(Histogram<u64>);

const LONGEST_NANOS: u64 = 60_000_000_000;

impl Latencies {
    /// None yet.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_NANOS, 3)?))
    }

    /// Adds one.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record((latency.as_nanos() as u64).clamp(1, LONGEST_NANOS));
    }

    /// Adds those of another thread.
    pub fn merge(&mut self, other: &Self) -> Result<(), hdrhistogram::AdditionError> {
        self.0.add(&other.0)
    }

    /// The latency that this share of them does not exceed, in microseconds; `None` if nothing was recorded.
    pub fn micros(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(share) as f64 / 1000.0)
    }

    /// The percentiles, or `None` if nothing was recorded.
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.0.is_empty() {
            return None;
        }
        let micros = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        Some(LatencySummary {
            mean_us: self.0.mean() / 1000.0,
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            p999_us: micros(0.999),
            max_us: self.0.max() as f64 / 1000.0,
        })
    }
}

/// Latency of one operation, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// The machine, for reports: cores, memory and processor.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let gib = (field(&memory, "MemTotal:") as f64 / f64::from(1 << 20)).round();
    format!("{cores} x {model}, {gib} GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_counted() {
        let before = Counters::now();
        let directory = tempfile::tempdir().expect("temporary directory");
        std::fs::write(directory.path().join("file"), vec![1; 1 << 20]).expect("write");
        let usage = Counters::now().since(&before);
        assert!(usage.bytes_written >= 1 << 20, "{usage:?}");
        assert!(peak_memory() > 1 << 20);
    }

    #[test]
    fn percentiles_are_those_of_the_records() {
        let mut all = Latencies::new().expect("histogram");
        let mut other = Latencies::new().expect("histogram");
        assert_eq!(all.summary(), None);
        for i in 1..=500 {
            all.record(Duration::from_micros(i));
            other.record(Duration::from_micros(500 + i));
        }
        all.merge(&other).expect("same bounds");
        let summary = all.summary().expect("records");
        assert!((summary.p50_us - 500.0).abs() < 2.0 && (summary.p99_us - 990.0).abs() < 2.0, "{summary:?}");
    }
}
