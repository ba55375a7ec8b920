//! For tests: whether every number of a page is in its data.

fn numbers(text: &str) -> Vec<String> {
    let number = regex::Regex::new(r"\d+(\.\d+)?").expect("a pattern");
    number.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// The text that a reader of some HTML sees.
fn seen(html: &str) -> String {
    regex::Regex::new(r"<[^>]*>").expect("a pattern").replace_all(html, " ").into_owned()
}

/// All numbers of some JSON: as values, and within its text.
fn data_of(value: &serde_json::Value, values: &mut Vec<f64>, words: &mut Vec<String>) {
    match value {
        serde_json::Value::Number(number) => values.extend(number.as_f64()),
        serde_json::Value::String(text) => words.extend(numbers(text)),
        serde_json::Value::Array(list) => list.iter().for_each(|each| data_of(each, values, words)),
        serde_json::Value::Object(map) => map.values().for_each(|each| data_of(each, values, words)),
        _ => {}
    }
}

/// Numbers in the text and tables of a page, and beside its bars, that are not in the data of the page. The scales of charts
/// are left out, because they have round numbers of their own.
pub fn missing_numbers(html: &str) -> Vec<String> {
    let body = html.split_once("<body>").expect("a body").1.split_once("<script").expect("data").0;
    let json = html.split_once("id=\"json\">").expect("data").1.split_once("</script>").expect("its end").0;
    let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let (mut values, mut words) = (Vec::new(), Vec::new());
    data_of(&value, &mut values, &mut words);
    let drawing = regex::Regex::new(r#"(?s)<svg[^>]*aria-labelledby="w(\d+)-t.*?</svg>"#).expect("a pattern");
    let is_bars = |index: &str| {
        let index: usize = index.parse().expect("a number");
        value["figures"]["charts"][index]["kind"]["kind"] == "bars"
    };
    let all = regex::Regex::new(r"(?s)<svg.*?</svg>").expect("a pattern");
    let mut shown = numbers(&seen(&all.replace_all(body, "")));
    assert!(shown.len() > 100, "{shown:?}");
    for bars in drawing.captures_iter(body).filter(|bars| is_bars(&bars[1])) {
        let before = shown.len();
        shown.extend(numbers(&seen(&bars[0])));
        assert!(shown.len() > before);
    }
    let is_held = |number: &String| {
        let decimals = number.split_once('.').map_or(0, |(_, digits)| digits.len());
        words.contains(number) || values.iter().any(|value| format!("{value:.decimals$}") == *number)
    };
    shown.retain(|number| !is_held(number));
    shown
}
