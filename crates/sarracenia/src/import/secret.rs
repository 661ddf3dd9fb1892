//! Passwords in URLs, which must not come into a job or a message.

/// A text without the passwords of the URLs in it: `scheme://user:password@host` becomes
/// `scheme://user@host`. A password may hold a slash or an `@`, though none should.
pub(crate) fn without(text: &str) -> String {
    let mut parts = text.split("://");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("://");
        out.push_str(&without_one(part));
    }
    out
}

/// What stands behind `://`, without a password.
fn without_one(rest: &str) -> String {
    let word_end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (word, behind) = rest.split_at(word_end);
    let Some((before, host)) = word.rsplit_once('@') else {
        return rest.to_owned();
    };
    match before.split_once(':') {
        // A port, and an `@` in the path.
        Some((_, path)) if is_port_and_path(path) => rest.to_owned(),
        // Behind a host's slash, too, it may be a password that begins with a number.
        Some((user, _)) => format!("{user}@{host}{behind}"),
        None => rest.to_owned(),
    }
}

fn is_port_and_path(text: &str) -> bool {
    let port = text.split('/').next().unwrap_or_default();
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_number && text.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_taken_out_and_all_else_stays() {
        for (text, expected) in [
            ("amqp://u:pw@host/v", "amqp://u@host/v"),
            ("amqp://u:p@w@host", "amqp://u@host"),
            ("amqp://u:p/w@host", "amqp://u@host"),
            ("sftp://u@host/a:b", "sftp://u@host/a:b"),
            ("x http://h:80/a@b y", "x http://h:80/a@b y"),
            ("a://u:1@h b://v:2@i", "a://u@h b://v@i"),
            ("file:/a", "file:/a"),
            ("", ""),
        ] {
            assert_eq!(without(text), expected, "{text}");
        }
    }
}
