//! A call of a procedure.

use crate::caller::Asker;
use crate::handle;
use crate::node::Spot;
use crate::status::Answer;
use crate::table::Table;
use crate::xdr::Reader;

/// A call with its arguments.
pub(crate) struct Call<'a> {
    pub(crate) table: &'a Table,
    pub(crate) asker: &'a Asker,
    pub(crate) arguments: Reader<'a>,
}

impl Call<'_> {
    /// Reads a handle, and finds its node.
    pub(crate) fn spot(&mut self) -> Answer<Spot> {
        let handle = self.arguments.bytes(handle::MAX)?;
        self.table.at(self.asker, handle)
    }

    /// Reads the second handle of a call, and finds its node.
    pub(crate) fn spot_beside(&mut self, first: &Spot) -> Answer<Spot> {
        let handle = self.arguments.bytes(handle::MAX)?;
        self.table.beside(self.asker, first, handle)
    }
}
