//! The keys that a file may have. What is not among them is refused, and what is has a reader.

/// The keys of a kind of file.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// What the file is, such as "a job".
    pub of_what: &'static str,
    /// All of them: those of a table with its name before a dot.
    pub all: &'static [&'static str],
    /// How is written here what other programs call something, as the end of "write ...".
    pub elsewhere: fn(&str) -> Option<String>,
}

impl Keys {
    /// The key `name` of a table (empty at the top of the file).
    pub fn of(&self, table: &str, name: &str) -> Option<&'static str> {
        let mut all = self.all.iter().copied();
        all.find(|key| split(key) == (table, name))
    }

    /// Each key with its table and its name there.
    pub(crate) fn with_tables(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.all.iter().copied().map(split)
    }

    /// The table of this name.
    pub(crate) fn table(&self, name: &str) -> Option<&'static str> {
        self.tables().find(|table| *table == name)
    }

    /// The tables, some more than once.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &'static str> {
        let tables = self.with_tables().map(|(table, _)| table);
        tables.filter(|table| !table.is_empty())
    }
}

/// The table of a key (empty at the top of the file) and its name there.
pub(crate) fn split(key: &'static str) -> (&'static str, &'static str) {
    key.split_once('.').unwrap_or(("", key))
}
