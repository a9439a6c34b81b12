//! Every sample file of the repository is a topology.

use std::path::Path;
use std::{fs, io};

#[test]
fn every_sample_loads() -> io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("samples");
    let mut loaded = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        if let Err(errors) = topology::load(&text, &path.display().to_string()) {
            panic!("{errors}");
        }
        loaded += 1;
    }
    assert!(loaded >= 2, "samples are missing");
    Ok(())
}
