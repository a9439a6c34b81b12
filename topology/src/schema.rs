//! The JSON Schema of `topology.yaml`, from the types: what editors complete and check against.
//!
//! It knows shape only; what the parts must mean together is `check`'s.

use serde_json::Value;

use crate::model::Topology;

/// The schema as pretty-printed JSON with a final newline: the contents of `topology/topology.schema.json`.
#[must_use]
pub fn json_schema() -> String {
    let schema = schemars::schema_for!(Topology);
    format!("{:#}\n", sorted(schema.as_value()))
}

/// Keys in alphabetical order, whatever features of `serde_json` other crates of a build turn on.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            entries
                .into_iter()
                .map(|(key, value)| (key.clone(), sorted(value)))
                .collect()
        }
        Value::Array(values) => values.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
