//! The `mycelium` command: reads the command line and hands over to one command.

#![allow(dead_code)]

mod args;
mod demo;
mod failure;
mod input;
mod output;
mod render;

fn main() {}
