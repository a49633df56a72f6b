//! The JSON Schema of the run JSON is generated from its types. Tests validate each run JSON that they receive.

use std::sync::OnceLock;

use boon::{Compiler, SchemaIndex, Schemas};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use studysync::pipeline::RunReport;

use super::{assert_generated, assert_generated_part, page};

const FILE: &str = "docs/reference/run.schema.json";

fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<RunReport>().to_value();
    schema["title"] = json!("Run JSON of studysync");
    schema
}

/// Panics unless a run JSON is valid by the schema.
pub fn assert_valid(report: &Value) {
    static COMPILED: OnceLock<(Schemas, SchemaIndex)> = OnceLock::new();
    let (schemas, index) = COMPILED.get_or_init(|| {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let address = "https://studysync.example/run.schema.json";
        compiler.add_resource(address, schema()).unwrap();
        let index = compiler.compile(address, &mut schemas).unwrap();
        (schemas, index)
    });
    let fault = schemas.validate(report, *index).err().map(|error| format!("{error:#}"));
    assert!(fault.is_none(), "{}\n{report:#}", fault.unwrap_or_default());
}

/// Describes a type of the schema in words.
fn type_of(property: &Value) -> String {
    if let Some(name) = property["$ref"].as_str() {
        return link(name);
    }
    let described = |value: &Value| match value.as_str() {
        Some("array") => format!("list of {}", type_of(&property["items"])),
        Some("object") => match property.get("additionalProperties") {
            Some(values) => format!("{} by name", type_of(values)),
            None => "numbers by name".to_owned(),
        },
        Some("integer") => "whole number".to_owned(),
        Some("string") => "text".to_owned(),
        other => other.unwrap_or("value").to_owned(),
    };
    match &property["type"] {
        Value::Array(types) => types.iter().map(described).collect::<Vec<_>>().join(" or "),
        Value::Null => property["anyOf"]
            .as_array()
            .map_or("value".to_owned(), |any| any.iter().map(type_of).collect::<Vec<_>>().join(" or ")),
        named => described(named),
    }
}

fn link(reference: &str) -> String {
    let name = reference.trim_start_matches("#/$defs/");
    format!("[{name}](#{})", name.to_lowercase())
}

fn rows(definition: &Value) -> String {
    let text = |value: &Value| value["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
    if let Some(choices) = definition["oneOf"].as_array() {
        let row = |choice: &Value| format!("| `{}` | {} |\n", choice["const"].as_str().unwrap(), text(choice));
        return format!("| value | meaning |\n|---|---|\n{}", choices.iter().map(row).collect::<String>());
    }
    let required: Vec<&str> =
        definition["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let row = |(name, property): (&String, &Value)| {
        let is_always = if required.contains(&name.as_str()) { "yes" } else { "no" };
        let meaning = text(property);
        assert!(!meaning.is_empty(), "{name} has no description: document the field of its type");
        format!("| `{name}` | {} | {is_always} | {meaning} |\n", type_of(property))
    };
    let properties = definition["properties"].as_object().unwrap();
    format!(
        "| field | type | always there | meaning |\n|---|---|---|---|\n{}",
        properties.iter().map(row).collect::<String>()
    )
}

#[test]
fn the_schema_is_that_of_the_types() {
    let schema = schema();
    assert_generated(FILE, &format!("{schema:#}\n"));
    let mut text = format!("## The object\n\n{}", rows(&schema));
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let about = definition["description"].as_str().unwrap_or_default();
        text.push_str(&format!("\n## {name}\n\n{about}\n\n{}", rows(definition)));
    }
    assert_generated_part("docs/reference/run-json.md", "fields", &text);
}

#[test]
fn the_example_of_the_page_is_valid() {
    let blocks = page("docs/reference/run-json.md").blocks();
    let examples: Vec<Value> = blocks
        .iter()
        .filter(|block| block.language == "json")
        .map(|block| serde_json::from_str(&block.text).unwrap())
        .collect();
    assert!(!examples.is_empty());
    examples.iter().for_each(assert_valid);
}

#[test]
fn a_report_that_breaks_the_contract_is_noticed() {
    let blocks = page("docs/reference/run-json.md").blocks();
    let block = blocks.iter().find(|block| block.language == "json").unwrap();
    let broken = |change: fn(&mut Value)| {
        let mut report = serde_json::from_str(&block.text).unwrap();
        change(&mut report);
        std::panic::catch_unwind(|| assert_valid(&report)).is_err()
    };
    assert!(!broken(|_| {}));
    assert!(broken(|report| report["outcome"] = json!("fine")));
    assert!(broken(|report| drop(report.as_object_mut().unwrap().remove("exit_code"))));
    assert!(broken(|report| report["streams"]["responses"]["inserted"] = json!("3")));
    assert!(broken(|report| report["time_ms"]["wall"] = json!(-1)));
}
