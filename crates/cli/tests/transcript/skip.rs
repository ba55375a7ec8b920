//! Cases that are not run, each with its reason: `skip.toml`.

/// One entry: a transcript (`seeds/000-nvme`, `openzfs-2.4.99/*`), a command of it (the whole text, or a
/// beginning with `*` behind it), and why.
#[derive(Debug)]
pub struct Entry {
    file: String,
    case: String,
    reason: String,
}

/// Reads the list.
///
/// # Errors
/// The fault of the list.
pub fn read(text: &str) -> Result<Vec<Entry>, String> {
    let table: toml::Table = text.parse().map_err(|e| format!("{e}"))?;
    let Some(entries) = table.get("skip") else { return Ok(Vec::new()) };
    let entries = entries.as_array().ok_or("'skip' must be a list of tables")?;
    entries
        .iter()
        .map(|entry| {
            let field = |name: &str| -> Result<String, String> {
                let value = entry.get(name).and_then(|v| v.as_str());
                Ok(value.ok_or_else(|| format!("an entry lacks '{name}'"))?.to_owned())
            };
            Ok(Entry { file: field("file")?, case: field("case")?, reason: field("reason")? })
        })
        .collect()
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => text.starts_with(beginning),
        None => pattern == text,
    }
}

/// The reason for which a case is left out.
pub fn reason<'a>(entries: &'a [Entry], file: &str, command: &str) -> Option<&'a str> {
    let found = entries.iter().find(|e| matches(&e.file, file) && matches(&e.case, command))?;
    Some(&found.reason)
}
