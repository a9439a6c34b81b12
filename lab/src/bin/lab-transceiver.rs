//! `lab-transceiver`: a transceiver whose voice measures. Everything but the voice is the product's.

use std::process::ExitCode;

use lab::meter::Meter;

fn main() -> ExitCode {
    runtime::node::main("transceiver", |context| {
        transceiver::start_with(context, || Box::new(Meter::default()))
    })
}
