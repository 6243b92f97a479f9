//! The `mycelium` command: reads the command line and hands over to one command.

mod args;
mod commands;
mod demo;
mod exact;
mod failure;
mod input;
mod output;
mod render;

use std::process::ExitCode;

use clap::Parser;

use args::{Command, CommandLine};
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    let CommandLine { json, command } = CommandLine::parse();
    match run(json, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(json: bool, command: Command) -> Result<(), Failure> {
    let mut output = Output::stdout(json);
    let out = &mut output;
    let result = match command {
        Command::Demo(args) => demo::run(&args, out),
        Command::Tables(args) => commands::tables::run(&args, out),
        Command::Create(args) => commands::create::run(&args, out),
        Command::Layout(args) => commands::layout::run(&args, out),
        Command::Column(command) => commands::column::run(&command, out),
        Command::Drop(args) => commands::drop::run(&args, out),
        Command::Compact(args) => commands::compact::run(&args, out),
        Command::Expire(args) => commands::expire::run(&args, out),
        Command::Index(command) => commands::index::run(&command, out),
        Command::View(command) => commands::view::run(&command, out),
        Command::Load(args) => commands::load::run(&args, out),
        Command::Get(args) => commands::get::run(&args, out),
        Command::Put(args) => commands::put::run(&args, out),
        Command::Delete(args) => commands::delete::run(&args, out),
        Command::Scan(args) => commands::scan::run(&args, out),
        Command::Sql(args) => commands::sql::run(&args, out),
        Command::Advise(args) => commands::advise::run(&args, out),
        Command::Inspect(args) => commands::inspect::run(&args, out),
        Command::Verify(args) => commands::verify::run(&args, out),
        Command::Salvage(args) => commands::salvage::run(&args, out),
        Command::Checkpoint(args) => commands::checkpoint::run(&args, out),
        Command::Backup(command) => commands::backup::run(&command, out),
        Command::Bench(args) => commands::bench::run(&args, out),
    };
    // What was printed before a failure is part of the answer.
    let flushed = output.flush();
    result.and(flushed)
}
