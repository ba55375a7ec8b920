//! Completion for fish.

use super::{Argument, Sub, Tool, origin, values};

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn operands(tool: &Tool, sub: &Sub) -> Vec<String> {
    let all = [
        (sub.operands.pools, "(zpool list -H -o name 2>/dev/null)".to_owned()),
        (sub.operands.datasets, "(zfs list -H -t filesystem,volume -o name 2>/dev/null)".to_owned()),
        (sub.operands.snapshots, "(zfs list -H -t snapshot -o name 2>/dev/null)".to_owned()),
        (sub.operands.properties, format!("(__cenote_{}_properties)", tool.name)),
        (
            sub.operands.places,
            "(zfs list -H -t filesystem -o name 2>/dev/null | string replace -r '$' ':/')".to_owned(),
        ),
    ];
    all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, words)| words).collect()
}

fn lines(tool: &Tool, sub: &Sub) -> String {
    let name = tool.name;
    let seen = match name {
        // `cenote zfs list` is completed by the rules of zfs.
        "cenote" => format!(
            "__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from zfs zpool",
            sub.names.join(" ")
        ),
        _ => format!("__fish_seen_subcommand_from {}", sub.names.join(" ")),
    };
    let mut text = format!(
        "complete -c {name} -n __fish_use_subcommand -f -a {} -d {}\n",
        quoted(&sub.names.join(" ")),
        quoted(&sub.summary)
    );
    for choice in &sub.choices {
        text += &format!("complete -c {name} -n {}", quoted(&seen));
        choice.short.iter().for_each(|letter| text += &format!(" -s {letter}"));
        choice.long.iter().for_each(|word| text += &format!(" -l {word}"));
        match &choice.argument {
            None => {}
            Some(Argument::Property) => text += &format!(" -x -a '(__cenote_{name}_properties)'"),
            Some(Argument::Named(_)) => text += " -r",
        }
        text += &format!(" -d {}\n", quoted(&choice.about));
    }
    let files = if sub.operands.files { "" } else { " -f" };
    for words in operands(tool, sub) {
        text += &format!("complete -c {name} -n {}{files} -a {}\n", quoted(&seen), quoted(&words));
    }
    text
}

/// The script for one program.
pub fn script(tool: &Tool) -> String {
    let name = tool.name;
    let mut text = origin("#", name);
    text += &format!("function __cenote_{name}_properties\n");
    for property in tool.properties {
        text += &format!("    echo {}\n", property.name);
        for value in values(property) {
            text += &format!("    echo {}={value}\n", property.name);
        }
    }
    text += "end\n";
    text + &tool.commands.iter().map(|sub| lines(tool, sub)).collect::<String>()
}
