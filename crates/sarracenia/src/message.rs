//! A message of Sarracenia, version 03: a JSON object that says of one entry what has become of it.
//!
//! What would be dangerous is refused: a path that leads out of its tree, a NUL, a base URL of a
//! scheme that names no tree. All else is read as leniently as Sarracenia reads it; what cannot be
//! read, or is not known, is kept and written again as it was. A message says that a path may
//! differ. What it says of sizes and times is for others who read it.

use crate::base::BaseUrl;
use crate::fields::{Fields, number};
use crate::name;
use crate::operation::Operation;
use crate::refused::Refused;
use crate::time;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use driftless_model::{RelPath, Stamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Bytes of a message at most. One with a file in it has a few thousand as a rule.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The field that has the bytes of names that are not UTF-8: an object with the keys `relPath`,
/// `rename`, `link` and `hlink`.
pub const NAMES_FIELD: &str = "driftlessNames";

/// The field of a directory below which all may differ. Its value says nothing.
pub const BELOW_FIELD: &str = "driftlessBelow";

/// A message, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// When it was published, or published again.
    pub pub_time: Stamp,
    /// The tree in which it happened.
    pub base_url: BaseUrl,
    /// Where, below the base URL.
    pub rel_path: RelPath,
    /// A sum of the content.
    pub identity: Option<Identity>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last modification.
    pub mtime: Option<Stamp>,
    /// Last access.
    pub atime: Option<Stamp>,
    /// Permission bits with setuid, setgid and sticky (07777).
    pub mode: Option<u32>,
    /// What was done, if that was not writing a file.
    pub file_op: Option<Operation>,
    /// All below it may differ, too.
    pub is_below: bool,
    /// A path by which consumers may call it; not that of a rename.
    pub rename: Option<String>,
    /// From where it is to be fetched, in place of its path.
    pub retrieve_path: Option<String>,
    /// The parts in which it travels.
    pub blocks: Option<Blocks>,
    /// The content of a small file.
    pub content: Option<Content>,
    /// All else, as it was.
    pub others: Map<String, Value>,
}

/// A sum of the content, as the one who announced it has made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// How it was made, such as `sha512`.
    pub method: String,
    /// The sum: in base64 where the method makes one.
    pub value: String,
}

/// The parts in which a large file travels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocks {
    /// `inplace`, `partitioned` or `separate`.
    pub method: String,
    /// Bytes of a part.
    #[serde(deserialize_with = "size")]
    pub size: u64,
    /// All else: which part it is, what is known of each.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The content of a small file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// `utf-8`, `base64` or `iso-8859-1`.
    pub encoding: String,
    /// The content in this encoding.
    pub value: String,
}

impl Content {
    /// The bytes of the file; `None` if they are not what the encoding says.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self.encoding.as_str() {
            "utf-8" => Some(self.value.clone().into_bytes()),
            "base64" => STANDARD.decode(without_space(&self.value)).ok(),
            "iso-8859-1" => self
                .value
                .chars()
                .map(|c| u8::try_from(u32::from(c)).ok())
                .collect(),
            _ => None,
        }
    }
}

impl Message {
    /// A message that says nothing but when and where.
    pub fn new(pub_time: Stamp, base_url: BaseUrl, rel_path: RelPath) -> Message {
        Message {
            pub_time,
            base_url,
            rel_path,
            identity: None,
            size: None,
            mtime: None,
            atime: None,
            mode: None,
            file_op: None,
            is_below: false,
            rename: None,
            retrieve_path: None,
            blocks: None,
            content: None,
            others: Map::new(),
        }
    }

    /// Reads the body of a message.
    ///
    /// # Errors
    /// It is too long, is no JSON object, lacks what every message has, or would be dangerous.
    pub fn parse(body: &[u8]) -> Result<Message, Refused> {
        check_length(body)?;
        let mended = name::mended(body);
        let is_mended = matches!(mended, std::borrow::Cow::Owned(_));
        let object: Map<String, Value> =
            serde_json::from_slice(&mended).map_err(|error| Refused::Json(error.to_string()))?;
        Message::of(object, is_mended)
    }

    /// The body of the message.
    pub fn to_json(&self) -> String {
        Value::Object(self.to_object()).to_string()
    }

    /// A message from its object. Where Python's stand-ins were replaced, those of its names are
    /// bytes.
    pub(crate) fn of(object: Map<String, Value>, is_mended: bool) -> Result<Message, Refused> {
        let mut from = Fields(object);
        let beside: Map<String, Value> = from.formed(NAMES_FIELD).unwrap_or_default();
        let bytes = |key: &str, text: &str| match is_mended {
            true => name::without_stand_ins(text),
            false => name::bytes(text, beside.get(key).and_then(Value::as_str)),
        };
        let pub_time = from.needed("pubTime")?;
        let moment = time::read(&pub_time);
        let base_url = from.needed("baseUrl")?;
        let rel_path = from.needed("relPath")?;
        let operation = from.0.remove("fileOp");
        let size = from.number("size");
        Ok(Message {
            pub_time: moment.ok_or_else(|| Refused::malformed("pubTime", &pub_time, "a moment"))?,
            base_url: BaseUrl::parse(&base_url)?,
            rel_path: path("relPath", &bytes("relPath", &rel_path))?,
            identity: identity(&mut from),
            size: size.or_else(|| size_of_parts(&mut from)),
            mtime: from.moment("mtime"),
            atime: from.moment("atime"),
            mode: from.mode("mode"),
            file_op: operation
                .map(|value| Operation::read(&value, &bytes))
                .transpose()?,
            is_below: from.0.remove(BELOW_FIELD).is_some(),
            rename: from.text("rename"),
            retrieve_path: from.text("retrievePath").or_else(|| from.text("retPath")),
            blocks: from.formed("blocks"),
            content: from.formed("content"),
            others: from.0,
        })
    }

    fn to_object(&self) -> Map<String, Value> {
        let mut object = self.others.clone();
        let mut beside = Map::new();
        let name = self.rel_path.as_bytes();
        beside.extend(name::escaped(name).map(|text| ("relPath".to_owned(), text.into())));
        let operation = self.file_op.as_ref().map(|one| one.write(&mut beside));
        let names = (!beside.is_empty()).then_some(Value::Object(beside));
        // Of a moment in no year of four digits, the message says nothing; the one that every
        // message has is then the first.
        let moment = |at: Option<Stamp>| at.and_then(time::written).map(Value::from);
        let published = moment(Some(self.pub_time)).or_else(|| moment(Some(Stamp::default())));
        let fields = [
            ("pubTime", published),
            ("baseUrl", Some(self.base_url.as_str().into())),
            ("relPath", Some(name::shown(name).into())),
            ("identity", self.identity.as_ref().map(value)),
            ("size", self.size.map(Value::from)),
            ("mtime", moment(self.mtime)),
            ("atime", moment(self.atime)),
            ("mode", self.mode.map(|mode| format!("{mode:o}").into())),
            ("fileOp", operation),
            ("rename", self.rename.clone().map(Value::from)),
            ("retrievePath", self.retrieve_path.clone().map(Value::from)),
            ("blocks", self.blocks.as_ref().map(value)),
            ("content", self.content.as_ref().map(value)),
            (BELOW_FIELD, self.is_below.then(|| "".into())),
            (NAMES_FIELD, names),
        ];
        let there = fields.into_iter();
        object.extend(there.filter_map(|(key, value)| Some((key.to_owned(), value?))));
        object
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_object().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Message, D::Error> {
        let object = Map::deserialize(from)?;
        Message::of(object, false).map_err(serde::de::Error::custom)
    }
}

/// Refuses what is longer than any message.
pub(crate) fn check_length(body: &[u8]) -> Result<(), Refused> {
    match body.len() {
        0..=MESSAGE_BYTES_MAX => Ok(()),
        bytes => Err(Refused::TooLong {
            bytes,
            max: MESSAGE_BYTES_MAX,
        }),
    }
}

/// A path below a base URL. It is appended there, so that slashes at its start mean nothing.
pub(crate) fn path(field: &'static str, bytes: &[u8]) -> Result<RelPath, Refused> {
    let start = bytes.iter().position(|byte| *byte != b'/');
    let relative = &bytes[start.unwrap_or(bytes.len())..];
    RelPath::parse(relative).map_err(|_| Refused::path(field, bytes))
}

/// The poster in C breaks long values; earlier versions call the field otherwise.
fn identity(from: &mut Fields) -> Option<Identity> {
    let named: Option<Identity> = from.formed("identity");
    let identity = named.or_else(|| from.formed("integrity"))?;
    Some(Identity {
        value: identity.value.replace(['\n', '\r'], ""),
        ..identity
    })
}

/// The size in the field `parts` of version 02, which early messages of version 03 have as well:
/// `1,SIZE,1,0,0` for a file in one part.
fn size_of_parts(from: &mut Fields) -> Option<u64> {
    from.take("parts", |value| {
        let mut words = value.as_str()?.split(',').map(str::trim);
        let is_whole = words.next() == Some("1");
        words.next().filter(|_| is_whole)?.parse().ok()
    })
}

fn without_space(text: &str) -> String {
    text.split_ascii_whitespace().collect()
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(from)?;
    number(&value).ok_or_else(|| serde::de::Error::custom("no size"))
}

fn value(plain: &impl Serialize) -> Value {
    serde_json::to_value(plain).unwrap_or_default()
}
