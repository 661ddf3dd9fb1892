//! What a message says was done, where that was not writing a file: its `fileOp`.

use crate::fields::Fields;
use crate::name;
use crate::refused::Refused;
use serde_json::{Map, Value};

/// What was done. The paths are those of the one who announced it: absolute ones on its host, or
/// such below its base URL. Nothing is opened by them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operation {
    /// It was renamed from this path.
    pub rename: Option<Vec<u8>>,
    /// It was removed.
    pub remove: bool,
    /// It is a directory.
    pub directory: bool,
    /// It is a symbolic link to this target.
    pub link: Option<Vec<u8>>,
    /// It is a further name of the file at this path.
    pub hlink: Option<Vec<u8>>,
    /// All else, as it was.
    pub others: Map<String, Value>,
}

/// How the name of a field becomes bytes: by what travels beside it.
pub(crate) type ToBytes<'a> = &'a dyn Fn(&str, &str) -> Vec<u8>;

impl Operation {
    /// Reads the object.
    pub(crate) fn read(value: &Value, bytes: ToBytes) -> Result<Operation, Refused> {
        let Value::Object(object) = value else {
            return Err(Refused::malformed(
                "fileOp",
                &value.to_string(),
                "an object",
            ));
        };
        let mut fields = Fields(object.clone());
        let mut path = |key: &'static str| {
            let text = fields.text(key)?;
            Some(checked(bytes(key, &text)))
        };
        let rename = path("rename").transpose()?;
        let link = path("link").transpose()?;
        let hlink = path("hlink").transpose()?;
        let mut is_there = |key| fields.0.remove(key).is_some();
        Ok(Operation {
            rename,
            link,
            hlink,
            remove: is_there("remove"),
            // Sarracenia makes the second of a message of version 02.
            directory: is_there("directory") | is_there("mkdir"),
            others: fields.0,
        })
    }

    /// Writes the object; `beside` gets the names that are not UTF-8.
    pub(crate) fn write(&self, beside: &mut Map<String, Value>) -> Value {
        let mut object = self.others.clone();
        for (key, path) in [
            ("rename", &self.rename),
            ("link", &self.link),
            ("hlink", &self.hlink),
        ] {
            if let Some(path) = path {
                object.insert(key.into(), name::shown(path).into());
                let escaped = name::escaped(path).map(|text| (key.to_owned(), text.into()));
                beside.extend(escaped);
            }
        }
        for (key, is_there) in [("remove", self.remove), ("directory", self.directory)] {
            if is_there {
                object.insert(key.into(), "".into());
            }
        }
        Value::Object(object)
    }
}

fn checked(path: Vec<u8>) -> Result<Vec<u8>, Refused> {
    if path.is_empty() || path.contains(&0) {
        return Err(Refused::path("fileOp", &path));
    }
    Ok(path)
}
