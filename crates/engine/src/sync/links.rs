//! Hard-link groups during a run: the first name met leads, the others become links to it.
//!
//! A thread that meets a further name while the first is still being copied leaves it here and goes
//! on; it is put back into the queue when the group is settled.

use driftless_lock::Mutex;
use driftless_model::{Meta, RelPath};
use driftless_state::{InodeId, Leader, LinkTable};
use std::collections::{HashMap, HashSet};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Inodes held in memory; more spill to disk. At some 200 bytes each this is 20 MB.
const MEMORY_INODES_MAX: usize = 100_000;

/// What is to be done with a name of a file that has several.
#[derive(Debug)]
pub enum Arrival {
    /// It is the first: make it equal, then settle the group. All names of this inode of the
    /// replica are known to be the group's.
    Lead(Option<Whole>),
    /// Link it to this one.
    Follow(Leader),
    /// It was kept until the group is settled.
    Waits,
    /// It would have to wait, and too many do: it is to be met again when all else is done.
    PutOff,
}

/// What the replica has at a name.
#[derive(Debug, Clone, Copy)]
pub enum Standing {
    /// Nothing, and other names of the group may be there.
    Missing,
    /// Nothing: all of its directory is new.
    New,
    /// This inode. The number stands for the place: its directory and its name.
    Inode(InodeId, u64),
}

/// An inode of the replica all of whose names, so many, are names of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    inode: InodeId,
    names: u64,
}

impl Whole {
    /// Whether it is this one, and has got no further name since.
    pub fn is(&self, there: &Meta) -> bool {
        there.id() == self.inode && there.nlink <= self.names
    }
}

/// A group whose names wait for a leader.
#[derive(Debug)]
struct Open<T> {
    stage: Stage,
    waiting: Vec<T>,
    /// The inode of the replica whose names are to be known. Once a group: where they did not all
    /// come, they never will.
    gathered: Option<Gathered>,
    /// Whether it has a leader in the table, which can have no further name.
    succeeds: bool,
}

/// Which names of an inode of the replica were met as names of the group.
#[derive(Debug)]
struct Gathered {
    whole: Whole,
    places: HashSet<u64>,
}

impl Gathered {
    /// Adds a name; returns whether all are known now.
    fn add(&mut self, there: Standing) -> bool {
        if let Standing::Inode(inode, place) = there
            && inode == self.whole.inode
        {
            self.places.insert(place);
        }
        self.places.len() as u64 >= self.whole.names
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// All names so far are missing on the replica; one that is there would save copying the
    /// content.
    Hoping,
    /// What differs could be set in place, if all names of the replica's inode turn out to be the
    /// group's.
    Gathering,
    /// No such name is to come: the next to arrive leads.
    Elected,
    /// One leads.
    Led,
}

impl<T> Open<T> {
    fn new(stage: Stage) -> Self {
        Open {
            stage,
            waiting: Vec::new(),
            gathered: None,
            succeeds: false,
        }
    }

    /// Whether a name that arrives waits; else it leads.
    fn holds(&mut self, nlink: u64, there: Standing) -> bool {
        let is_missing = matches!(there, Standing::Missing);
        match self.stage {
            Stage::Led => true,
            Stage::Hoping => is_missing && (self.waiting.len() as u64) + 1 < nlink,
            Stage::Gathering => !self
                .gathered
                .as_mut()
                .is_some_and(|gathered| gathered.add(there)),
            Stage::Elected => false,
        }
    }

    /// Has a name lead.
    fn led(&mut self) -> Option<Whole> {
        let was = std::mem::replace(&mut self.stage, Stage::Led);
        self.gathered
            .as_ref()
            .filter(|_| was == Stage::Gathering)
            .map(|gathered| gathered.whole)
    }
}

/// Groups that wait for names, in the hope of one that is there or to know all of an inode; more
/// are copied at once.
const OPEN_MAX: usize = 10_000;

/// Groups that are looked at in the end, because their names changed while the run went on; more
/// are reported at once.
const LATE_MAX: usize = 10_000;

/// Names that wait for the first of their group at a time, at some 100 bytes each, and what their
/// directories take. Further ones are put off, on disk.
const WAITING_MAX: usize = 20_000;

/// Names that wait for others to come, at a time; groups that would want more, such as one with
/// more names than this, are copied at once.
const EXPECTING_MAX: usize = WAITING_MAX / 2;

/// Names that were put off and are met again at a time.
const PUT_OFF_MAX: usize = 10_000;

/// Groups that have several inodes on the replica, since its file system takes no more names for
/// one.
const FURTHER_GROUPS_MAX: usize = 1_000;

/// Inodes of such a group: 16 bytes each, and looked through for each of its names.
const FURTHER_MAX: usize = 1_000;

/// The groups of a run; `T` is a name that waits.
#[derive(Debug)]
pub struct Links<T> {
    state: Mutex<State<T>>,
    /// Of groups whose names changed while the run went on, the first name and how many there were
    /// when that was met.
    late: Mutex<HashMap<InodeId, (RelPath, u64)>>,
    /// Claims of single names so far.
    alone: AtomicU64,
    /// It was told that a group has more names than one inode of the replica can have.
    has_told_further: AtomicBool,
}

#[derive(Debug)]
struct State<T> {
    table: LinkTable,
    open: HashMap<InodeId, Open<T>>,
    /// Names that wait, of all groups.
    waiting: usize,
    /// Groups with more names than one inode of the replica can have.
    further: HashMap<InodeId, Further>,
}

/// The inodes of a group with more names than one inode of the replica can have.
#[derive(Debug, Default)]
struct Further {
    /// Those that are right besides the leader.
    inodes: Vec<InodeId>,
    /// The newest leader, which the table forgets when all names have come.
    newest: Option<Leader>,
}

impl Further {
    fn add(&mut self, there: InodeId) {
        if !self.inodes.contains(&there) {
            self.inodes.push(there);
        }
    }
}

type Store<R> = Result<R, driftless_state::StoreError>;

impl<T> Default for Links<T> {
    fn default() -> Self {
        Links::new()
    }
}

impl<T> Links<T> {
    /// No groups yet.
    pub fn new() -> Self {
        let state = State {
            table: LinkTable::new(MEMORY_INODES_MAX),
            open: HashMap::new(),
            waiting: 0,
            further: HashMap::new(),
        };
        Links {
            state: Mutex::new(state),
            late: Mutex::default(),
            alone: AtomicU64::new(0),
            has_told_further: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// A name of the source inode `id`, which has `nlink` names, was met; `there` is what the
    /// replica has at it.
    pub fn arrive(&self, id: InodeId, nlink: u64, there: Standing, name: T) -> Store<Arrival> {
        let State {
            table,
            open,
            waiting,
            ..
        } = &mut *self.lock();
        let room = open.len() < OPEN_MAX && *waiting < EXPECTING_MAX;
        if let Some(group) = open.get_mut(&id) {
            if !group.holds(nlink, there) {
                return Ok(Arrival::Lead(group.led()));
            }
            if group.stage == Stage::Led && *waiting >= WAITING_MAX {
                return Ok(Arrival::PutOff);
            }
            if group.stage != Stage::Led && *waiting >= EXPECTING_MAX {
                group.stage = Stage::Led;
                return Ok(Arrival::Lead(None));
            }
            group.waiting.push(name);
            *waiting += 1;
            return Ok(Arrival::Waits);
        }
        if let Some(leader) = table.meet(id)? {
            return Ok(Arrival::Follow(leader));
        }
        if matches!(there, Standing::Missing) && room {
            open.insert(
                id,
                Open {
                    waiting: vec![name],
                    ..Open::new(Stage::Hoping)
                },
            );
            *waiting += 1;
            return Ok(Arrival::Waits);
        }
        open.insert(id, Open::new(Stage::Led));
        Ok(Arrival::Lead(None))
    }

    /// What differs of the first name of a group could be set in place, were it known that all
    /// names of its inode on the replica, `there`, are the group's: has it wait for that. Returns
    /// the names that have to arrive once more; `None` if that is not to be known.
    pub fn gather(&self, id: InodeId, there: &Meta, name: T) -> Option<Vec<T>> {
        let State { open, waiting, .. } = &mut *self.lock();
        let room = open.len() <= OPEN_MAX && *waiting < EXPECTING_MAX;
        let group = open
            .get_mut(&id)
            .filter(|group| room && group.gathered.is_none() && !group.succeeds)?;
        let whole = Whole {
            inode: there.id(),
            names: there.nlink,
        };
        group.stage = Stage::Gathering;
        group.gathered = Some(Gathered {
            whole,
            places: HashSet::new(),
        });
        let mut again = std::mem::take(&mut group.waiting);
        *waiting -= again.len();
        again.push(name);
        Some(again)
    }

    /// No more names are to come: returns one of each group that still waits for some, which will
    /// lead when it arrives again. One that was elected before and could not be looked at any more
    /// never arrived: then it is another's turn.
    pub fn elect(&self) -> Vec<T> {
        let State { open, waiting, .. } = &mut *self.lock();
        let waits = open.values_mut().filter(|group| group.stage != Stage::Led);
        let elected: Vec<T> = waits
            .filter_map(|group| {
                group.stage = Stage::Elected;
                group.waiting.pop()
            })
            .collect();
        *waiting -= elected.len();
        elected
    }

    /// The first name of a group is equal now (`leader`, with the names still to come), or failed
    /// (`None`: the next leads). Returns the names that waited.
    pub fn settle(&self, id: InodeId, leader: Option<Leader>) -> Store<Vec<T>> {
        let State {
            table,
            open,
            waiting,
            further,
        } = &mut *self.lock();
        let Some(Open {
            waiting: names,
            gathered,
            succeeds,
            ..
        }) = open.remove(&id)
        else {
            return Ok(Vec::new());
        };
        *waiting -= names.len();
        match (leader, gathered) {
            (Some(leader), _) => {
                // Names may have been given back since the former leader was found full.
                let left = if succeeds {
                    table.left(id)?.unwrap_or(0)
                } else {
                    leader.left
                };
                if let Some(group) = further.get_mut(&id) {
                    group.newest = Some(leader.clone());
                }
                table.settle(id, Leader { left, ..leader })?;
            }
            // All others would wait once more for each that fails.
            (None, Some(Gathered { whole, .. })) => {
                let gathered = Some(Gathered {
                    whole,
                    places: HashSet::new(),
                });
                open.insert(
                    id,
                    Open {
                        gathered,
                        ..Open::new(Stage::Elected)
                    },
                );
            }
            (None, None) => {}
        }
        Ok(names)
    }

    /// The inode of `full`, the leader that was given to a name, can have no further name: the name
    /// leads, unless another one does so already. A name that does not lead counts as not met.
    pub fn succeed(&self, id: InodeId, full: &Leader, name: T) -> Store<Arrival> {
        let State {
            table,
            open,
            waiting,
            further,
        } = &mut *self.lock();
        if let Some(group) = open.get_mut(&id) {
            table.give_back(id, full.clone())?;
            if *waiting >= WAITING_MAX {
                return Ok(Arrival::PutOff);
            }
            group.waiting.push(name);
            *waiting += 1;
            return Ok(Arrival::Waits);
        }
        let newest = further.get(&id).and_then(|group| group.newest.as_ref());
        if let Some(leader) = newest.filter(|newest| newest.id != full.id) {
            return Ok(Arrival::Follow(leader.clone()));
        }
        table.give_back(id, full.clone())?;
        if let Some(leader) = table.meet(id)?.filter(|leader| leader.id != full.id) {
            return Ok(Arrival::Follow(leader));
        }
        further.entry(id).or_default().add(full.id);
        open.insert(
            id,
            Open {
                succeeds: true,
                ..Open::new(Stage::Led)
            },
        );
        Ok(Arrival::Lead(None))
    }

    /// Whether an inode of the replica is known to be a further one of a group.
    pub fn is_further(&self, id: InodeId, there: InodeId) -> bool {
        let further = &self.lock().further;
        further
            .get(&id)
            .is_some_and(|group| group.inodes.contains(&there))
    }

    /// Notes that an inode of the replica is a further one of a group.
    pub fn add_further(&self, id: InodeId, there: InodeId) {
        self.lock().further.entry(id).or_default().add(there);
    }

    /// Whether one more group can have several inodes; of more, each further name is a problem.
    pub fn may_succeed(&self, id: InodeId) -> bool {
        let further = &self.lock().further;
        further.len() < FURTHER_GROUPS_MAX
            && further
                .get(&id)
                .is_none_or(|group| group.inodes.len() < FURTHER_MAX)
    }

    /// Whether it is to be told now that a group has several inodes: once a run.
    pub fn tells_further(&self) -> bool {
        !self.has_told_further.swap(true, Relaxed)
    }

    /// Notes that the content of a group's first name is the source's.
    pub fn prove(&self, id: InodeId) -> Store<()> {
        self.lock().table.prove(id)
    }

    /// A name that followed `leader` has to be met again, or was met before: it does not count.
    pub fn give_back(&self, id: InodeId, leader: &Leader) -> Store<()> {
        self.lock().table.give_back(id, leader.clone())
    }

    /// Keeps the path of a name that is to be met again.
    pub fn put_off(&self, path: &RelPath) -> Store<()> {
        self.lock().table.put_off(path.as_bytes())
    }

    /// Takes some of the paths of names that are to be met again, when nothing else is left to do.
    pub fn take_put_off(&self) -> Store<Vec<RelPath>> {
        let paths = self.lock().table.take_put_off(PUT_OFF_MAX)?;
        Ok(paths
            .iter()
            .filter_map(|path| RelPath::parse(path).ok())
            .collect())
    }

    /// Notes that the names of a group, `nlink` now, the first at `path`, changed while the run
    /// went on; returns whether there was room.
    pub fn note_late(&self, id: InodeId, path: RelPath, nlink: u64) -> bool {
        let mut late = self.late.lock();
        let fits = late.len() < LATE_MAX;
        if fits {
            late.insert(id, (path, nlink));
        }
        fits
    }

    /// Those of these groups of which not all names were met: the inode, the first name, how many
    /// were met.
    pub fn incomplete(&self) -> Store<Vec<(InodeId, RelPath, u64)>> {
        let late = std::mem::take(&mut *self.late.lock());
        let State { table, .. } = &*self.lock();
        let mut found = Vec::new();
        for (id, (path, nlink)) in late {
            found.extend(
                table
                    .left(id)?
                    .map(|left| (id, path, nlink.saturating_sub(left))),
            );
        }
        Ok(found)
    }

    /// Claims an inode of the replica for an inode of the source.
    pub fn claim(&self, replica: InodeId, source: InodeId) -> Store<bool> {
        self.lock().table.claim(replica, source)
    }

    /// Claims an inode for one name, and no other.
    pub fn claim_alone(&self, replica: InodeId) -> Store<bool> {
        // No device has this number (makedev(3)).
        let name = (u64::MAX, self.alone.fetch_add(1, Relaxed));
        self.claim(replica, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = (1, 2);

    fn waits(links: &Links<u32>, there: Standing, name: u32) {
        assert!(matches!(
            links.arrive(FILE, 3, there, name),
            Ok(Arrival::Waits)
        ));
    }

    fn leader(ino: u64, left: u64) -> Leader {
        Leader {
            path: b"first".to_vec(),
            id: (3, ino),
            left,
            proven: true,
        }
    }

    #[test]
    fn names_that_find_a_full_leader_at_once_share_the_next_one() {
        let names = 5;
        let links = Links::new();
        let arrive = |name| links.arrive(FILE, names, Standing::New, name).unwrap();
        assert!(matches!(arrive(1), Arrival::Lead(None)));
        assert!(
            links
                .settle(FILE, Some(leader(1, names - 1)))
                .unwrap()
                .is_empty()
        );
        let full: Vec<Leader> = [2, 3]
            .map(|name| match arrive(name) {
                Arrival::Follow(leader) => leader,
                other => panic!("{other:?}"),
            })
            .into();
        let succeed = |full: &Leader, name| links.succeed(FILE, full, name).unwrap();
        assert!(matches!(succeed(&full[0], 2), Arrival::Lead(None)));
        assert!(matches!(succeed(&full[1], 3), Arrival::Waits));
        assert_eq!(links.settle(FILE, Some(leader(2, names - 1))).unwrap(), [3]);
        for name in [3, 4, 5] {
            let arrival = arrive(name);
            assert!(
                matches!(&arrival, Arrival::Follow(leader) if leader.id == (3, 2)),
                "{name}: {arrival:?}"
            );
        }
    }

    #[test]
    fn where_an_elected_name_is_gone_another_leads() {
        let links = Links::new();
        [1, 2]
            .into_iter()
            .for_each(|name| waits(&links, Standing::Missing, name));
        assert_eq!(
            [links.elect(), links.elect(), links.elect()],
            [vec![2], vec![1], vec![]]
        );
        assert!(
            matches!(
                links.arrive(FILE, 3, Standing::Missing, 3),
                Ok(Arrival::Lead(None))
            ),
            "a name that comes late"
        );
    }
}
