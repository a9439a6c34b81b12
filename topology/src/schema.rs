//! The JSON Schema of `topology.yaml`, from the types: what editors complete and check against.
//!
//! It knows shape only; what the parts must mean together is `check`'s.

use crate::model::Topology;

/// The schema as pretty-printed JSON with a final newline: the contents of `topology/topology.schema.json`.
#[must_use]
pub fn json_schema() -> String {
    let schema = schemars::schema_for!(Topology);
    format!("{:#}\n", schema.as_value())
}
