//! The front ends of a server.

use std::sync::Arc;

use front::{Mounter, VolumeServer};

/// The front ends of a server.
#[derive(Clone)]
pub struct FrontEnds {
    /// Mounts file systems.
    pub mounter: Arc<dyn Mounter>,
    /// Serves volumes.
    pub volumes: Arc<dyn VolumeServer>,
}
