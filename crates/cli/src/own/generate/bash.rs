//! Completion for bash.

use super::{Argument, Operands, Sub, Tool, origin, values};

/// The value of `kinds` in the script.
pub(super) fn kinds(operands: Operands) -> String {
    let all = [
        (operands.pools, "pools"),
        (operands.datasets, "datasets"),
        (operands.snapshots, "snapshots"),
        (operands.properties, "properties"),
        (operands.files, "files"),
        (operands.places, "places"),
    ];
    all.iter().filter(|(wanted, _)| *wanted).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

/// Every spelling of every option, with its dashes.
fn options(sub: &Sub, wanted: impl Fn(&Option<Argument>) -> bool) -> String {
    let chosen = sub.choices.iter().filter(|choice| wanted(&choice.argument));
    let words = chosen.flat_map(|choice| {
        let short = choice.short.iter().map(|letter| format!("-{letter}"));
        short.chain(choice.long.iter().map(|word| format!("--{word}")))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn case(sub: &Sub) -> String {
    format!(
        "        {}) options='{}' about='{}' other='{}' kinds='{}';;\n",
        sub.names.join("|"),
        options(sub, |_| true),
        options(sub, |argument| *argument == Some(Argument::Property)),
        options(sub, |argument| matches!(argument, Some(Argument::Named(_)))),
        kinds(sub.operands)
    )
}

/// The words of properties with fixed values.
fn value_cases(tool: &Tool) -> String {
    let with = tool.properties.iter().filter(|property| !values(property).is_empty());
    with.map(|property| {
        let names = std::iter::once(property.name).chain(property.alias).collect::<Vec<_>>().join("|");
        format!("        {names}) echo '{}';;\n", values(property).join(" "))
    })
    .collect()
}

/// The part of the script that offers operands of all kinds that fit.
fn offers(tool: &Tool) -> String {
    let properties: Vec<&str> = tool.properties.iter().map(|property| property.name).collect();
    format!(
        r#"    for kind in $kinds; do
        case $kind in
            pools) words+=$'\n'$(zpool list -H -o name 2>/dev/null);;
            datasets) words+=$'\n'$(zfs list -H -t filesystem,volume -o name 2>/dev/null);;
            snapshots) [[ $current == *@* ]] && words+=$'\n'$(zfs list -H -t snapshot -o name 2>/dev/null);;
            places) words+=$'\n'$(zfs list -H -t filesystem -o name 2>/dev/null | sed 's/$/:/')
                compopt -o nospace 2>/dev/null;;
            properties) words+=$'\n'{properties};;
            files) compopt -o default 2>/dev/null;;
        esac
    done
    # One name a line: names of datasets may have blanks, which are typed with a backslash.
    current=${{current//\\ / }} IFS=$'\n'
    for words in $words; do
        [[ $words == "$current"* ]] && COMPREPLY+=("${{words// /\\ }}")
    done
"#,
        properties = properties.join("$'\\n'"),
    )
}

/// The script for one program.
pub fn script(tool: &Tool) -> String {
    let name = tool.name;
    let commands: Vec<&str> = tool.commands.iter().flat_map(|sub| &sub.names).map(String::as_str).collect();
    let cases: String = tool.commands.iter().map(case).collect();
    let first = match name {
        "cenote" => {
            "    if [[ $command == zfs || $command == zpool ]] && ((COMP_CWORD > 1)); then
        if ! declare -F _$command >/dev/null; then
            declare -F _completion_loader >/dev/null && _completion_loader $command
            declare -F _$command >/dev/null || return
        fi
        COMP_WORDS=(\"${COMP_WORDS[@]:1}\")
        ((COMP_CWORD--))
        _$command
        return
    fi
"
        }
        _ => "",
    };
    let value_cases = match value_cases(tool) {
        cases if cases.is_empty() => String::new(),
        cases => format!("    case $1 in\n{cases}    esac\n"),
    };
    origin("#", name)
        + &format!(
            r#"_{name}_values() {{
    :
{value_cases}}}

_{name}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
    local options= about= other= kinds= words= kind IFS=$' \t\n'
    COMPREPLY=()
{first}    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W '{commands}' -- "$current"))
        return
    fi
    case $command in
{cases}    esac
    # bash parts words at "=".
    if [[ $current == "=" ]]; then
        COMPREPLY=($(_{name}_values "$before"))
        return
    elif [[ $before == "=" ]]; then
        COMPREPLY=($(compgen -W "$(_{name}_values "${{COMP_WORDS[COMP_CWORD-2]}}")" -- "$current"))
        return
    elif [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
        return
    elif [[ " $about " == *" $before "* ]]; then
        kinds=properties
    elif [[ " $other " == *" $before "* ]]; then
        kinds=files
    fi
{offers}}}
complete -F _{name} {name}
"#,
            commands = commands.join(" "),
            offers = offers(tool),
        )
}
