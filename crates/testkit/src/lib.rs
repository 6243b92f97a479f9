//! The model, operation generators, crash driver and golden files that the tests share
