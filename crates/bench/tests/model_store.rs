//! The whole machinery against an ordered map: every workload runs and checks its answers, and a store that answers
//! wrongly is found out.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, RwLock};

use mycelium_bench::store::{Pair, Visit};
use mycelium_bench::workloads::Workload;
use mycelium_bench::{BenchArgs, KeyValueStore, Result, StoreFactory, StoreOptions, run_with};

type Map = Arc<RwLock<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// The map outlives each opened store, as a directory would.
#[derive(Default)]
struct Maps {
    map: Map,
    loses_one_key_in: Option<u8>,
}

struct MapStore {
    map: Map,
    loses_one_key_in: Option<u8>,
}

impl StoreFactory for Maps {
    fn name(&self) -> &str {
        "map"
    }

    fn open(&self, _: &Path, _: &StoreOptions) -> Result<Box<dyn KeyValueStore>> {
        Ok(Box::new(MapStore { map: Arc::clone(&self.map), loses_one_key_in: self.loses_one_key_in }))
    }
}

impl KeyValueStore for MapStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        if self.loses_one_key_in.is_none_or(|n| !key[7].is_multiple_of(n)) {
            self.map.write().expect("lock").insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn put_batch(&self, pairs: &[Pair<'_>]) -> Result<()> {
        pairs.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.map.write().expect("lock").remove(key);
        Ok(())
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let map = self.map.read().expect("lock");
        let found = map.get(key);
        if let Some(found) = found {
            value.clone_from(found);
        }
        Ok(found.is_some())
    }

    fn scan_from(&self, key: &[u8], count: usize, visit: Visit<'_>) -> Result<usize> {
        let map = self.map.read().expect("lock");
        let range = map.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)).take(count);
        Ok(range.inspect(|(key, value)| visit(key, value)).count())
    }

    fn scan_all(&self, visit: Visit<'_>) -> Result<u64> {
        Ok(self.scan_from(&[], usize::MAX, visit)? as u64)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

fn args(directory: &Path, workloads: Vec<String>) -> BenchArgs {
    BenchArgs {
        workloads,
        entries: 3000,
        seconds: 0.05,
        warmup_seconds: 0.0,
        directory: directory.to_path_buf(),
        no_isolation: true,
        ..BenchArgs::default()
    }
}

#[test]
fn every_workload_runs_and_is_reported() {
    let directory = tempfile::tempdir().expect("temporary directory");
    for fill in ["fillseq", "fillrandom", "fillbatch@2"] {
        let rest = Workload::names().filter(|name| !name.starts_with("fill") && *name != "deleterandom");
        // Deletes come last: after them a missing key is no error.
        let mut workloads = vec![fill.to_owned()];
        workloads.extend(rest.flat_map(|name| [name.to_owned(), format!("{name}@2")]));
        workloads.extend(["deleterandom", "readrandom", "scan"].map(str::to_owned));
        let mut args = args(directory.path(), workloads.clone());
        args.json_file = Some(directory.path().join("report.json"));
        let report = run_with(&args, &Maps::default()).expect("bench");
        let run = &report.scenarios[0].runs[0];
        assert_eq!(run.failure, None, "{fill}");
        let phases: Vec<_> = run.groups.iter().flat_map(|group| &group.phases).collect();
        assert_eq!(phases.len(), workloads.len());
        assert!(phases.iter().all(|phase| phase.operations > 0 && phase.latency.is_some()));
        assert!(workloads.iter().all(|name| report.table().contains(name)));
        let json = std::fs::read(directory.path().join("report.json")).expect("JSON file");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert!(json.pointer("/scenarios/0/figures/map/readrandom.rate/median").is_some());
    }
}

#[test]
fn a_store_that_loses_keys_is_found_out() {
    let directory = tempfile::tempdir().expect("temporary directory");
    for check in ["readrandom", "scan", "range100", "ycsb-a"] {
        let workloads = ["fillrandom", check].map(str::to_owned).to_vec();
        let maps = Maps { loses_one_key_in: Some(3), ..Maps::default() };
        let report = run_with(&args(directory.path(), workloads), &maps).expect("bench");
        let failure = report.scenarios[0].runs[0].failure.as_deref();
        assert!(failure.is_some_and(|text| text.starts_with(check)), "{check}: {failure:?}");
    }
}
