//! Answers of a server about its pool that need no command.

use super::Server;
use crate::messages::{Refusal, Reply};
use crate::{Figures, Silence};

impl Server {
    pub(super) fn devices(&self) -> Reply {
        match self.live.pool() {
            Ok(pool) => Reply::Devices(pool.ask_devices().into_iter().map(Silence::from).collect()),
            Err(_) => Reply::Refused(Refusal::Stopping),
        }
    }

    pub(super) fn figures(&self) -> Reply {
        let figures = self
            .live
            .pool()
            .map_err(|_| Refusal::Stopping)
            .and_then(|pool| Figures::of(&pool).map_err(|error| Refusal::Other(error.to_string())));
        figures.map_or_else(Reply::Refused, |figures| Reply::Figures(Box::new(figures)))
    }

    pub(super) fn events(&self, clear: bool) -> Reply {
        let Ok(pool) = self.live.pool() else { return Reply::Refused(Refusal::Stopping) };
        if clear {
            return Reply::Events { events: Vec::new(), gone: pool.clear_events() };
        }
        let happened = pool.events();
        let events = happened.events.iter().map(format::NvList::to_xdr).collect();
        Reply::Events { events, gone: happened.dropped }
    }
}
