//! Dependencies point one way: a crate may depend, also in its tests, only on crates earlier in this list.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::Result;

const ORDER: [&str; 20] = [
    "mycelium-base",
    "mycelium-vfs",
    "mycelium-encoding",
    "mycelium-cache",
    "mycelium-sst",
    "mycelium-wal",
    "mycelium-memtable",
    "mycelium-manifest",
    "mycelium-merge",
    "mycelium-transform",
    "mycelium-compaction",
    "mycelium-advisor",
    "mycelium-engine",
    "mycelium",
    "mycelium-sql",
    "mycelium-bench",
    "mycelium-cli",
    "mycelium-testkit",
    "mycelium-bench-peers",
    "xtask",
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Fails if a dependency points the wrong way or a crate is not in the list.
pub(crate) fn run(root: &Path) -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let (edges, wrong) = check(&metadata.packages);
    for line in &wrong {
        eprintln!("{line}");
    }
    if !wrong.is_empty() {
        return Err(format!("{} dependencies point the wrong way", wrong.len()).into());
    }
    println!("dependencies: {} crates, {edges} edges, all downward", metadata.packages.len());
    Ok(())
}

fn check(packages: &[Package]) -> (usize, Vec<String>) {
    let rank: BTreeMap<&str, usize> = ORDER.iter().enumerate().map(|(rank, name)| (*name, rank)).collect();
    let (mut edges, mut wrong) = (0, Vec::new());
    for package in packages {
        let Some(own) = rank.get(package.name.as_str()) else {
            wrong.push(format!("{} is not in the order of crates", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(other) = rank.get(dependency.name.as_str()) else { continue };
            edges += 1;
            if other >= own {
                let kind = dependency.kind.as_deref().unwrap_or("normal");
                wrong.push(format!("{} depends on {}, a later crate ({kind})", package.name, dependency.name));
            }
        }
    }
    (edges, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependency = |name: &&str| Dependency { name: (*name).to_owned(), kind: Some("dev".to_owned()) };
        Package { name: name.to_owned(), dependencies: dependencies.iter().map(dependency).collect() }
    }

    #[test]
    fn upward_edges_and_unknown_crates_are_found() {
        let good = [package("mycelium-sst", &["mycelium-cache", "serde"]), package("mycelium-base", &[])];
        assert_eq!(check(&good), (1, vec![]));
        let bad = [package("mycelium-base", &["mycelium-vfs", "mycelium-base"]), package("stranger", &[])];
        assert_eq!(check(&bad).1.len(), 3);
    }
}
