//! The committed JSON Schema is the one of the types. `cargo xtask schema` rewrites it.

use std::path::Path;
use std::{env, fs, io};

#[test]
fn the_committed_schema_is_up_to_date() -> io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology.schema.json");
    let schema = topology::json_schema();
    if env::var_os("FIRSTHOP_REWRITE").is_some() {
        return fs::write(path, schema);
    }
    let committed = fs::read_to_string(path)?;
    assert!(
        committed == schema,
        "topology.schema.json is not what the types say: run `cargo xtask schema`"
    );
    Ok(())
}
