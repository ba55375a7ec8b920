//! Completion for zsh.

use super::bash::kinds;
use super::{Argument, Choice, Sub, Tool, origin, values};

/// Text between single quotes and brackets.
fn quoted(text: &str) -> String {
    text.chars()
        .flat_map(|c| match c {
            '\'' => vec!['\'', '\\', '\'', '\''],
            '[' | ']' | ':' | '\\' => vec!['\\', c],
            c => vec![c],
        })
        .collect()
}

fn option(tool: &Tool, choice: &Choice) -> Vec<String> {
    let argument = match &choice.argument {
        None => String::new(),
        Some(Argument::Property) => format!(":property:_{}_properties", tool.name),
        Some(Argument::Named(name)) => format!(":{}:_files", quoted(name)),
    };
    let short = choice.short.iter().map(|letter| format!("-{letter}"));
    let all = short.chain(choice.long.iter().map(|word| format!("--{word}")));
    // May be given again, as all options may.
    all.map(|spelling| format!("'*{spelling}[{}]{argument}'", quoted(&choice.about))).collect()
}

fn case(tool: &Tool, sub: &Sub) -> String {
    let mut specs: Vec<String> = sub.choices.iter().flat_map(|choice| option(tool, choice)).collect();
    specs.push(format!("'*:operand:_{}_operands {}'", tool.name, kinds(sub.operands)));
    format!("        {}) _arguments -s -S {};;\n", sub.names.join("|"), specs.join(" "))
}

/// The function of the script that offers operands.
fn operands(name: &str) -> String {
    format!(
        r#"_{name}_operands() {{
    local kind
    for kind in "$@"; do
        case $kind in
            pools) compadd -- ${{(f)"$(zpool list -H -o name 2>/dev/null)"}};;
            datasets) compadd -- ${{(f)"$(zfs list -H -t filesystem,volume -o name 2>/dev/null)"}};;
            snapshots) [[ $PREFIX == *@* ]] && compadd -- ${{(f)"$(zfs list -H -t snapshot -o name 2>/dev/null)"}};;
            places) compadd -S ':/' -- ${{(f)"$(zfs list -H -t filesystem -o name 2>/dev/null)"}};;
            properties) _{name}_properties;;
            files) _files;;
        esac
    done
}}

"#
    )
}

/// The script for one program.
pub fn script(tool: &Tool) -> String {
    let name = tool.name;
    let commands: String = tool
        .commands
        .iter()
        .flat_map(|sub| sub.names.iter().map(move |name| (name, &sub.summary)))
        .map(|(name, summary)| format!("        '{name}:{}'\n", quoted(summary)))
        .collect();
    let cases: String = tool.commands.iter().map(|sub| case(tool, sub)).collect();
    let with = tool.properties.iter().filter(|property| !values(property).is_empty());
    let value_cases: String = with
        .map(|property| {
            let names = std::iter::once(property.name).chain(property.alias).collect::<Vec<_>>().join("|");
            format!("            {names}) compadd -- {};;\n", values(property).join(" "))
        })
        .collect();
    let properties: Vec<&str> = tool.properties.iter().map(|property| property.name).collect();
    let nested = match name {
        "cenote" => {
            "    if (( CURRENT > 2 )) && [[ $words[2] == (zfs|zpool) ]]; then
        shift words
        (( CURRENT-- ))
        _normal
        return
    fi
"
        }
        _ => "",
    };
    format!("#compdef {name}\n{}", origin("#", name))
        + &format!(
            r#"_{name}_properties() {{
    if compset -P 1 '*='; then
        case ${{IPREFIX%=}} in
{value_cases}            *) _files;;
        esac
    else
        compadd -S '' -- {properties}
    fi
}}

{operands}_{name}() {{
    local -a commands
    commands=(
{commands}    )
{nested}    if (( CURRENT == 2 )); then
        _describe -t commands 'command' commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{cases}    esac
}}

_{name} "$@"
"#,
            properties = properties.join(" "),
            operands = operands(name),
        )
}
