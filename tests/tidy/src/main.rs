//! `cargo run -p cenote-tidy -- graph [CRATE]` prints the module graph; `-- list` prints every finding as a list of exceptions.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::process::ExitCode;

use tidy::modules::Graph;
use tidy::{rules, source};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["graph"] => graph(None),
        ["graph", krate] => graph(Some(krate)),
        ["list"] => list(),
        _ => {
            eprintln!("usage: cenote-tidy graph [CRATE] | list");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Prints each module of each crate with the modules beside it that it uses, and the circles among them: first the modules of the
/// crate, then those inside each module.
fn graph(only: Option<&str>) {
    for krate in
        source::crates(&source::root()).iter().filter(|krate| only.is_none_or(|name| name == krate.name))
    {
        let graph = Graph::of(krate);
        for parent in graph.parents() {
            let arrows = graph.among(&parent);
            let modules: BTreeSet<&String> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
            if modules.is_empty() {
                continue;
            }
            let place = std::iter::once(&krate.name).chain(&parent).map(String::as_str);
            println!("{}: {} modules with arrows", place.collect::<Vec<_>>().join("::"), modules.len());
            for module in modules {
                let uses: Vec<&str> =
                    arrows.keys().filter(|(from, _)| from == module).map(|(_, to)| to.as_str()).collect();
                let uses = if uses.is_empty() { "nothing".to_owned() } else { uses.join(", ") };
                println!("  {module} -> {uses}");
            }
        }
        let circles = tidy::modules::circles(krate);
        println!("{}: {} circles", krate.name, circles.len());
        for circle in circles {
            println!("  circle: {}", circle.message);
        }
    }
}

fn list() {
    for (rule, findings) in rules(&source::crates(&source::root())) {
        for finding in findings {
            println!("[[{rule}]]\nat = {:?}\nvalue = {}\nreason = \"\"\n", finding.at, finding.value);
        }
    }
}
