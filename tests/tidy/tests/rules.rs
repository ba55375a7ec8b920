//! Every rule of the source text. A failure names the place, the rule and its reason.

use tidy::{exceptions, rules, source};

#[test]
fn the_source_follows_its_own_rules() {
    let root = source::root();
    let crates = source::crates(&root);
    assert!(
        crates.len() > 10 && crates.iter().all(|krate| !krate.files.is_empty()),
        "the crates were not found"
    );
    let exceptions = exceptions::read(&root);
    let rules = rules(&crates);
    let mut said: Vec<String> = exceptions
        .keys()
        .filter(|name| !rules.iter().any(|(rule, _)| rule == name))
        .map(|name| format!("exceptions.toml: there is no rule {name}"))
        .collect();
    for (rule, findings) in &rules {
        said.extend(exceptions::judge(rule, findings, &exceptions));
    }
    assert!(said.is_empty(), "{} places break a rule of STYLE.md:\n{}", said.len(), said.join("\n"));
}

/// `tests/words` prints each sentence that is too long or has one of STYLE.md's riddles.
#[test]
fn pages_have_short_and_plain_sentences() {
    let script = source::root().join("tests/words");
    let output =
        std::process::Command::new("python3").arg(&script).output().expect("python3 runs tests/words");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "sentences that are hard to read (STYLE.md, Plain words):\n{said}");
}
