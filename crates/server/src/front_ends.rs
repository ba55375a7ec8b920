//! The front ends of a server.

use std::sync::Arc;

use front::{FileServer, Mounter, VolumeServer};

/// The front ends of a server.
#[derive(Clone)]
pub struct FrontEnds {
    /// Mounts file systems.
    pub mounter: Arc<dyn Mounter>,
    /// Serves volumes.
    pub volumes: Arc<dyn VolumeServer>,
    /// Serves file systems over the network.
    pub files: Arc<dyn FileServer>,
}
