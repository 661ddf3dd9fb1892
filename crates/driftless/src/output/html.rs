//! Pages of HTML that need nothing else: how they look, and how text gets into them.

use super::product::{Form, Product};
use std::io::Write as _;

/// How a page looks.
pub const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.1em;margin-top:2em}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.2em .8em .2em 0;border-bottom:1px solid #ddd}\
td.path,td.details{font-family:monospace;overflow-wrap:anywhere}td.number,th.number{text-align:right;white-space:nowrap}\
.proof{font-size:1.15em;font-weight:bold}svg{max-width:100%;height:auto}";

/// The file of a page. It is begun before anything else, so that hours of work are not lost to a
/// wrong name.
pub const FORM: Form = Form {
    what: "the report",
    begins: b"<!doctype html>",
};

/// Writes the page and gives the file its name.
pub fn write(mut file: Product, page: &str) -> Result<(), String> {
    file.write_all(page.as_bytes())
        .map_err(|error| file.unwritten(&error))?;
    file.publish()
}

/// Text that stands for itself in HTML. Control characters were escaped before, since XML has none.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escaped("<a href=\"x\">'&amp;"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;amp;"
        );
    }
}
