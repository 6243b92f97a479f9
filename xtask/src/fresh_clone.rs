//! The README's first two commands on a fresh clone.
//!
//! 1. Takes the first two commands (`$ …` or plain lines) of the README's shell blocks.
//! 2. Clones the current commit into a temporary directory with a target directory of its own.
//! 3. Runs both in order there; then, on a second clone, the second one alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;

/// Fails if a command fails; writes how many did to `json_file`.
pub(crate) fn run(root: &Path, json_file: Option<&Path>) -> Result<()> {
    let readme =
        fs::read_to_string(root.join("README.md")).map_err(|error| format!("cannot read README.md: {error}"))?;
    let commands = commands(&readme);
    let [first, second, ..] = commands.as_slice() else {
        return Err(format!("README.md shows {} commands; two are needed", commands.len()).into());
    };
    let mut failed = 0;
    for (name, sequence) in [("in order", vec![first, second]), ("alone", vec![second])] {
        let directory = std::env::temp_dir().join(format!("mycelium-fresh-clone-{}", std::process::id()));
        clone(root, &directory)?;
        for command in sequence {
            println!("fresh clone, {name}: {command}");
            let status = Command::new("sh")
                .args(["-c", command])
                .current_dir(&directory)
                .env("CARGO_TARGET_DIR", directory.join("target"))
                .status()?;
            if !status.success() {
                eprintln!("{command:?} ended with {status}");
                failed += 1;
            }
        }
        fs::remove_dir_all(&directory)?;
    }
    if let Some(path) = json_file {
        fs::write(path, serde_json::json!({ "failed": failed }).to_string())?;
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} commands failed on a fresh clone").into()) }
}

fn clone(root: &Path, directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    let status = Command::new("git").args(["clone", "--quiet"]).arg(root).arg(directory).status()?;
    if status.success() { Ok(()) } else { Err(format!("git clone ended with {status}").into()) }
}

fn commands(readme: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_shell = false;
    for line in readme.lines().map(str::trim) {
        if let Some(language) = line.strip_prefix("```") {
            in_shell = !in_shell && matches!(language, "sh" | "bash" | "shell" | "console");
        } else if in_shell && !line.is_empty() && !line.starts_with('#') {
            let command = line.strip_prefix("$ ").unwrap_or(line);
            commands.push(command.split(" # ").next().unwrap_or(command).trim().to_owned());
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_come_from_shell_blocks_only() {
        let readme =
            "text\n```sh\n# a comment\n$ cargo run  # the demo\n\ncargo test\n```\n```rust\nfn main() {}\n```\n";
        assert_eq!(super::commands(readme), ["cargo run", "cargo test"]);
    }
}
