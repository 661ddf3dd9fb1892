//! Names of sections, statements and batch systems, and the nearest one to a misspelt word.

/// Longer words are not compared: they are no typing errors.
const COMPARED_BYTES_MAX: usize = 40;

/// Batch system, by the value of `WLM_SYSTEM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkloadManager {
    /// Grid Engine: `SGE`, `GE` or `UGE`.
    GridEngine,
    /// Slurm: `SLURM`.
    Slurm,
    /// OpenPBS or PBS Professional: `PBS`, `PBSPRO` or `OPENPBS`.
    Pbs,
    /// TORQUE: `TORQUE`. Its commands are those of PBS, their output is not.
    Torque,
}

/// Names of batch systems. The first ones stand in the error for an unknown name.
const SYSTEMS: [(&str, WorkloadManager); 8] = [
    ("SLURM", WorkloadManager::Slurm),
    ("SGE", WorkloadManager::GridEngine),
    ("GE", WorkloadManager::GridEngine),
    ("UGE", WorkloadManager::GridEngine),
    ("PBS", WorkloadManager::Pbs),
    ("PBSPRO", WorkloadManager::Pbs),
    ("OPENPBS", WorkloadManager::Pbs),
    ("TORQUE", WorkloadManager::Torque),
];

impl WorkloadManager {
    pub(crate) fn of(name: &[u8]) -> Option<WorkloadManager> {
        let found = SYSTEMS
            .iter()
            .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
        found.map(|(_, system)| *system)
    }
}

/// Returns the remedy for an unknown batch system.
pub(crate) fn system_instead(name: &[u8]) -> String {
    match nearest(name, SYSTEMS.map(|(name, _)| (name, name))) {
        Some(name) => format!("write {name}"),
        None => "write SLURM, SGE, GE, UGE, PBS, PBSPRO, OPENPBS or TORQUE".to_owned(),
    }
}

/// Section of a task file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Wlm,
    Data,
    Execute,
    Results,
    Cleanup,
}

impl Section {
    pub const ALL: [Section; 5] = [
        Section::Wlm,
        Section::Data,
        Section::Execute,
        Section::Results,
        Section::Cleanup,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Section::Wlm => "WLM",
            Section::Data => "DATA",
            Section::Execute => "EXECUTE",
            Section::Results => "RESULTS",
            Section::Cleanup => "CLEANUP",
        }
    }

    pub fn of(word: &[u8]) -> Option<Section> {
        let mut all = Section::ALL.into_iter();
        all.find(|section| section.name().as_bytes().eq_ignore_ascii_case(word))
    }

    pub fn nearest(word: &[u8]) -> Option<Section> {
        nearest(word, Section::ALL.map(|section| (section, section.name())))
    }

    /// Returns a section as it may stand in a file, for an error.
    pub fn example(self) -> String {
        let first = Keyword::ALL
            .iter()
            .find(|keyword| keyword.section() == self);
        let form = first.map_or("", |keyword| keyword.form());
        format!("{} {{ {form} }}", self.name())
    }

    /// Returns the statement that a section needs.
    pub fn required(self) -> Option<Keyword> {
        match self {
            Section::Wlm => Some(Keyword::System),
            Section::Data => Some(Keyword::Transfer),
            Section::Execute => Some(Keyword::Do),
            Section::Results | Section::Cleanup => None,
        }
    }

    /// Returns the forms of the section's statements, for an error.
    pub fn forms(self) -> String {
        let all = Keyword::ALL.iter();
        let own = all.filter(|keyword| keyword.section() == self);
        own.map(|keyword| keyword.form())
            .collect::<Vec<_>>()
            .join(" or ")
    }
}

/// First word of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Keyword {
    System,
    Options,
    Transfer,
    Do,
    Collect,
    PurgeAll,
    Keep,
}

impl Keyword {
    pub const ALL: [Keyword; 7] = [
        Keyword::System,
        Keyword::Options,
        Keyword::Transfer,
        Keyword::Do,
        Keyword::Collect,
        Keyword::PurgeAll,
        Keyword::Keep,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Keyword::System => "WLM_SYSTEM",
            Keyword::Options => "OPTIONS",
            Keyword::Transfer => "TRANSFER",
            Keyword::Do => "DO",
            Keyword::Collect => "COLLECT",
            Keyword::PurgeAll => "PURGEALL",
            Keyword::Keep => "KEEP",
        }
    }

    /// Returns an example of the statement, for an error.
    pub fn form(self) -> &'static str {
        match self {
            Keyword::System => "WLM_SYSTEM = SLURM;",
            Keyword::Options => "OPTIONS = \"OPTIONS\";",
            Keyword::Transfer => "TRANSFER PATH;",
            Keyword::Do => "DO SCRIPT;",
            Keyword::Collect => "COLLECT TO \"PATTERN\";",
            Keyword::PurgeAll => "PURGEALL;",
            Keyword::Keep => "KEEP 7d;",
        }
    }

    pub fn section(self) -> Section {
        match self {
            Keyword::System | Keyword::Options => Section::Wlm,
            Keyword::Transfer => Section::Data,
            Keyword::Do => Section::Execute,
            Keyword::Collect => Section::Results,
            Keyword::PurgeAll | Keyword::Keep => Section::Cleanup,
        }
    }

    pub fn of(word: &[u8]) -> Option<Keyword> {
        let mut all = Keyword::ALL.into_iter();
        all.find(|keyword| keyword.name().as_bytes().eq_ignore_ascii_case(word))
    }

    /// Returns the nearest keyword, the section's own before those of other sections.
    pub fn nearest(word: &[u8], section: Section) -> Option<Keyword> {
        let named = Keyword::ALL.map(|keyword| (keyword, keyword.name()));
        let own = named.iter().filter(|(one, _)| one.section() == section);
        nearest(word, own.copied()).or_else(|| nearest(word, named))
    }
}

/// Returns the thing whose name is nearest to a word. Returns `None` if each name differs in more than a
/// third of its letters.
pub(crate) fn nearest<T>(
    word: &[u8],
    named: impl IntoIterator<Item = (T, &'static str)>,
) -> Option<T> {
    if word.len() > COMPARED_BYTES_MAX {
        return None;
    }
    let word = String::from_utf8_lossy(word).to_ascii_uppercase();
    let near = |(thing, name): (T, &str)| {
        let distance = strsim::damerau_levenshtein(&word, name);
        (distance <= (name.len() / 3).max(1)).then_some((thing, distance))
    };
    let found = named.into_iter().filter_map(near);
    found
        .min_by_key(|(_, distance)| *distance)
        .map(|(thing, _)| thing)
}
