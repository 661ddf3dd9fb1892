//! What others are told of a replica: what a piece of work has changed there, and what stands there
//! by then.

use super::{Hands, Outcome};
use crate::gathered::Gathered;
use crate::herald::{New, News};
use driftless_engine::Onlooker;

impl Hands {
    /// Who looks at the replica; `None` while the trees are closed.
    pub(crate) fn onlooker(&self) -> Option<Onlooker> {
        let open = self.open.read().clone();
        open.and_then(|open| open.trees.onlooker())
    }

    /// What a piece of work has changed is told behind the renames that it has carried out.
    pub(super) fn gather_news(&self, gathered: &Gathered, outcome: &mut Outcome) {
        if !self.tells {
            return;
        }
        let relocated = gathered.relocated.lock();
        let moved = relocated.iter().map(|(from, to)| New::Moved {
            from: from.clone(),
            to: to.clone(),
            is_dir: true,
        });
        outcome.news.all.extend(moved);
        let made = gathered.changed.lock();
        let news = News::of(&made, &gathered.linked.lock());
        outcome.news.all.extend(news.all);
        outcome.news.is_more |= gathered.has_lost_changes();
    }
}
